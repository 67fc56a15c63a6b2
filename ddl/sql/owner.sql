-- Who took each table last: the fence for nodes that are cut off from etcd.
CREATE TABLE IF NOT EXISTS `{database}`.owner (
    group_name   VARCHAR(64)       NOT NULL,
    table_no     SMALLINT UNSIGNED NOT NULL,
    node         VARCHAR(64)       NOT NULL,
    revision     BIGINT            NOT NULL COMMENT 'etcd revision at which the table was taken',
    gmt_modified DATETIME(3)       NOT NULL,
    PRIMARY KEY (group_name, table_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
