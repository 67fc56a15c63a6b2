-- What was moved here from an outbox, a row of the outbox each, written with what it moved: what stands here is not moved
-- again. A row goes some time after its outbox row. An outbox that was emptied may give an id again, hence created.
CREATE TABLE IF NOT EXISTS `{database}`.relayed (
    outbox     VARCHAR(64)     NOT NULL COMMENT 'identity of the outbox, in the comment of its table',
    id         BIGINT UNSIGNED NOT NULL COMMENT 'of its row',
    created    DATETIME(6)     NOT NULL COMMENT 'of its row, UTC',
    job_id     BIGINT UNSIGNED NOT NULL COMMENT 'the task that was added, or 0',
    gmt_create DATETIME(3)     NOT NULL,
    gone       DATETIME(3)     NULL COMMENT 'when the row was first seen to be gone from its outbox',
    PRIMARY KEY (outbox, id, created),
    KEY idx_gone (gone)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
