-- One row: what this database is part of. Clients and nodes refuse what differs.
CREATE TABLE IF NOT EXISTS `{database}`.layout (
    id                  TINYINT UNSIGNED  NOT NULL COMMENT 'always 1',
    cluster_id          VARCHAR(64)       NOT NULL,
    database_no         SMALLINT UNSIGNED NOT NULL COMMENT 'number of this database, 0-based',
    databases_total     SMALLINT UNSIGNED NOT NULL,
    tables_per_database SMALLINT UNSIGNED NOT NULL,
    hash                VARCHAR(16)       NOT NULL COMMENT 'crc32: CRC32 of the decimal text of biz_id',
    doorbell_horizon_ms INT UNSIGNED      NOT NULL COMMENT 'nearer tasks ring the doorbell',
    schema_version      INT UNSIGNED      NOT NULL,
    works_with          INT UNSIGNED      NOT NULL COMMENT 'oldest schema version that programs may expect here',
    state               VARCHAR(16)       NOT NULL COMMENT 'active; held until an operator decides; or retired after a move',
    gmt_create          DATETIME(3)       NOT NULL,
    identity            VARCHAR(64)       NOT NULL DEFAULT '' COMMENT 'random, the same in all databases of the cluster',
    ownership           VARCHAR(16)       NOT NULL DEFAULT 'etcd' COMMENT 'etcd: each table has an owner; rows: every node claims each row',
    mark                BIGINT            NOT NULL DEFAULT 0 COMMENT 'Unix ms; nodes raise it every 10 s: an older copy has a lower one',
    sweep_grace_ms      INT UNSIGNED      NOT NULL DEFAULT 0 COMMENT 'how long a task is overdue before a sweep takes it; 0: not written yet',
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
