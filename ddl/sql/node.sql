-- Who is there, where nodes share tables without etcd: each node writes its row anew every few seconds, in every database.
CREATE TABLE IF NOT EXISTS `{database}`.node (
    group_name     VARCHAR(64)   NOT NULL,
    node           VARCHAR(64)   NOT NULL,
    seen           DATETIME(3)   NOT NULL COMMENT 'when it wrote last, by the clock of this server',
    gmt_create     DATETIME(3)   NOT NULL,
    schema_version INT UNSIGNED  NOT NULL COMMENT 'that its program is for',
    about          VARCHAR(8192) NOT NULL COMMENT 'JSON: what it says of itself',
    PRIMARY KEY (group_name, node)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
