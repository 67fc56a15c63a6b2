-- What became of deliveries, one attempt a row, for biz types that keep a history. Written after the outcome is stored, as far as
-- that succeeds at once: an attempt may lack its row. Purged from the lowest run_id on. Times are UTC.
CREATE TABLE IF NOT EXISTS `{database}`.run (
    run_id      BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
    job_id      BIGINT UNSIGNED   NOT NULL COMMENT 'of the task',
    schedule_id BIGINT UNSIGNED   NULL COMMENT 'of the schedule whose run it is; NULL: of none',
    biz_type    BIGINT UNSIGNED   NOT NULL COMMENT 'number in biz_type',
    version     INT UNSIGNED      NOT NULL COMMENT 'of the task, as delivered',
    attempt     SMALLINT UNSIGNED NOT NULL COMMENT 'from 1',
    node        VARCHAR(64)       NOT NULL COMMENT 'who delivered',
    started     DATETIME(3)       NOT NULL,
    lateness_ms BIGINT            NOT NULL COMMENT 'started - action_time',
    duration_ms INT UNSIGNED      NOT NULL,
    outcome     VARCHAR(16)       NOT NULL COMMENT 'completed, retried, snoozed, buried, cancelled, lost, missed, skipped and the like',
    output      VARCHAR(1024)     NOT NULL DEFAULT '' COMMENT 'what the handler or callback answered, cut to fit',
    PRIMARY KEY (run_id),
    KEY idx_job (job_id),
    KEY idx_schedule (schedule_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
