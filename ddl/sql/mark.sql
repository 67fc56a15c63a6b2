-- What this database knows of the marks of the cluster's other databases, each at most as high as that in its layout row.
-- A database whose own mark is far below one that is kept elsewhere is an older copy.
CREATE TABLE IF NOT EXISTS `{database}`.mark (
    database_no  SMALLINT UNSIGNED NOT NULL,
    identity     VARCHAR(64)       NOT NULL COMMENT 'of the cluster: marks of another one do not count',
    mark         BIGINT            NOT NULL COMMENT 'Unix ms, as in the layout row of that database',
    gmt_modified DATETIME(3)       NOT NULL,
    PRIMARY KEY (database_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
