-- Who took each table last: the fence for nodes that are cut off from etcd. A group_name with # before it marks the
-- highest epoch that was reserved for the group.
CREATE TABLE IF NOT EXISTS `{database}`.owner (
    group_name   VARCHAR(64)       NOT NULL,
    table_no     SMALLINT UNSIGNED NOT NULL,
    node         VARCHAR(64)       NOT NULL,
    revision     BIGINT            NOT NULL COMMENT 'a later owner has a higher one: epoch * 2^40 + etcd revision',
    gmt_modified DATETIME(3)       NOT NULL,
    PRIMARY KEY (group_name, table_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
