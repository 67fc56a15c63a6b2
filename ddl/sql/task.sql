-- One task a row. All times are UTC, rounded up to the millisecond by who writes. Every statement of Tocsin names
-- its index, so statistics that are counted anew after each tenth of the rows would only cost.
CREATE TABLE IF NOT EXISTS `{database}`.`{table}` (
    job_id       BIGINT UNSIGNED   NOT NULL COMMENT '41 bits ms since 2026-01-01 UTC, 13 bits table number, 9 bits sequence',
    gmt_create   DATETIME(3)       NOT NULL,
    gmt_modified DATETIME(3)       NOT NULL,
    biz_id       BIGINT UNSIGNED   NOT NULL COMMENT 'sharding key: table number = CRC32(biz_id) % tables of the layout',
    biz_type     BIGINT UNSIGNED   NOT NULL COMMENT 'number in biz_type',
    status       TINYINT UNSIGNED  NOT NULL COMMENT '0 pending, 1 claimed, 2 done, 3 cancelled, 4 dead',
    action_time  DATETIME(3)       NOT NULL COMMENT 'pending: when to act next; claimed: deadline of the claim; final: when settled',
    due_time     DATETIME(3)       NOT NULL COMMENT 'the action time last asked for',
    attempts     SMALLINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'failed deliveries',
    crashes      TINYINT UNSIGNED  NOT NULL DEFAULT 0 COMMENT 'claims that ran out without an outcome',
    version      INT UNSIGNED      NOT NULL DEFAULT 0 COMMENT 'grows with reschedule and redrive',
    claimed_by   CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    dedup_key    VARBINARY(64)     NULL,
    last_error   VARCHAR(255)      NOT NULL DEFAULT '',
    attribute    VARCHAR(8192)     NOT NULL COMMENT 'the payload, passed through unread',
    headers      VARCHAR(1024)     NULL COMMENT 'JSON object of texts: trace context, tenant',
    biz_key      VARBINARY(64)     NOT NULL DEFAULT '' COMMENT 'the business key that biz_id is made of; empty: biz_id is the key',
    PRIMARY KEY (job_id),
    UNIQUE KEY uk_biz (biz_id, biz_type, dedup_key),
    KEY idx_due (status, action_time, biz_type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
