-- Append-only: who adds a task nearer than the horizon says so here.
CREATE TABLE IF NOT EXISTS `{database}`.doorbell (
    id          BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
    table_no    SMALLINT UNSIGNED NOT NULL,
    job_id      BIGINT UNSIGNED   NOT NULL,
    biz_type    BIGINT UNSIGNED   NOT NULL,
    action_time DATETIME(3)       NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
