-- An outbox. A program that adds, cancels or reschedules a task in a transaction on this server inserts a row here: with
-- biz_type, with biz_id or biz_key, and, unless it cancels, with due_time or delay_ms. A relay moves the row and deletes it. Lock
-- your own row first and write here last: then the ids are the order of what happens to one biz_id.
CREATE TABLE IF NOT EXISTS `{database}`.`{table}` (
    id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    op         VARCHAR(16)     NOT NULL DEFAULT 'add' COMMENT 'add, cancel or reschedule',
    biz_type   VARCHAR(64)     NOT NULL COMMENT 'name of the biz type',
    biz_id     BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'above 0; or biz_key',
    biz_key    VARBINARY(64)   NOT NULL DEFAULT '' COMMENT 'a business key that is no number, UTF-8; or biz_id',
    due_time   DATETIME(3)     NULL COMMENT 'when to act, UTC; or delay_ms',
    delay_ms   BIGINT UNSIGNED NULL COMMENT 'act this many milliseconds after created; or due_time',
    dedup_key  VARBINARY(64)   NULL COMMENT 'no second task of the biz_type and biz_id or biz_key with this key',
    headers    VARCHAR(1024)   NULL COMMENT 'JSON object of texts: trace context, tenant',
    attribute  VARCHAR(8192)   NOT NULL DEFAULT '' COMMENT 'the payload, passed through unread',
    created    TIMESTAMP(6)    NOT NULL DEFAULT CURRENT_TIMESTAMP(6) COMMENT 'leave it out',
    attempts   INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'how often a relay has set the row aside; leave it out',
    last_error VARCHAR(255)    NOT NULL DEFAULT '' COMMENT 'why a relay has set the row aside; leave it out',
    PRIMARY KEY (id),
    CHECK (op IN ('add', 'cancel', 'reschedule')),
    CHECK ((biz_id > 0) <> (biz_key <> '')),
    CHECK (op = 'cancel' OR (due_time IS NULL) <> (delay_ms IS NULL))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
