-- The kinds of task and their policies; the same in every database.
CREATE TABLE IF NOT EXISTS `{database}`.biz_type (
    number       BIGINT UNSIGNED NOT NULL,
    name         VARCHAR(64)     NOT NULL,
    group_name   VARCHAR(64)     NOT NULL COMMENT 'the nodes that deliver it',
    policy       TEXT            NOT NULL COMMENT 'JSON',
    revision     BIGINT UNSIGNED NOT NULL COMMENT 'grows with each change',
    gmt_modified DATETIME(3)     NOT NULL,
    PRIMARY KEY (number),
    UNIQUE KEY uk_name (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
