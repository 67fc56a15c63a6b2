-- The tables that commit 93fae2b, a program for schema version 2, made for a layout of 2x4, of the first database. Never edit it: tests
-- of upgrades begin here. The task tables lack STATS_AUTO_RECALC = 0, so that an upgrade has to alter each of them.
CREATE DATABASE IF NOT EXISTS `toc_0` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row: what this database is part of. Clients and nodes refuse what differs.
CREATE TABLE IF NOT EXISTS `toc_0`.layout (
    id                  TINYINT UNSIGNED  NOT NULL COMMENT 'always 1',
    cluster_id          VARCHAR(64)       NOT NULL,
    database_no         SMALLINT UNSIGNED NOT NULL COMMENT 'number of this database, 0-based',
    databases_total     SMALLINT UNSIGNED NOT NULL,
    tables_per_database SMALLINT UNSIGNED NOT NULL,
    hash                VARCHAR(16)       NOT NULL COMMENT 'crc32: CRC32 of the decimal text of biz_id',
    doorbell_horizon_ms INT UNSIGNED      NOT NULL COMMENT 'nearer tasks ring the doorbell',
    schema_version      INT UNSIGNED      NOT NULL,
    works_with          INT UNSIGNED      NOT NULL COMMENT 'oldest schema version that programs may expect here',
    state               VARCHAR(16)       NOT NULL COMMENT 'active, or retired after a move',
    gmt_create          DATETIME(3)       NOT NULL,
    identity            VARCHAR(64)       NOT NULL DEFAULT '' COMMENT 'random, the same in all databases of the cluster',
    ownership           VARCHAR(16)       NOT NULL DEFAULT 'etcd' COMMENT 'etcd: each table has an owner; rows: every node claims each row',
    mark                BIGINT            NOT NULL DEFAULT 0 COMMENT 'Unix ms; nodes raise it every 10 s: an older copy has a lower one',
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;

INSERT /* tocsin ddl layout */ IGNORE INTO `toc_0`.layout
    (id, cluster_id, database_no, databases_total, tables_per_database, hash,
     doorbell_horizon_ms, schema_version, works_with, state, gmt_create, identity, ownership)
VALUES
    (1, 'version2', 0, 2, 4, 'crc32',
     10000, 2, 2, 'active', UTC_TIMESTAMP(3), '', 'etcd');

-- The kinds of task and their policies; the same in every database.
CREATE TABLE IF NOT EXISTS `toc_0`.biz_type (
    number       BIGINT UNSIGNED NOT NULL,
    name         VARCHAR(64)     NOT NULL,
    group_name   VARCHAR(64)     NOT NULL COMMENT 'the nodes that deliver it',
    policy       TEXT            NOT NULL COMMENT 'JSON',
    revision     BIGINT UNSIGNED NOT NULL COMMENT 'grows with each change',
    gmt_modified DATETIME(3)     NOT NULL,
    PRIMARY KEY (number),
    UNIQUE KEY uk_name (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;

-- Who took each table last: the fence for nodes that are cut off from etcd. A group_name with # before it marks the
-- highest epoch that was reserved for the group.
CREATE TABLE IF NOT EXISTS `toc_0`.owner (
    group_name   VARCHAR(64)       NOT NULL,
    table_no     SMALLINT UNSIGNED NOT NULL,
    node         VARCHAR(64)       NOT NULL,
    revision     BIGINT            NOT NULL COMMENT 'a later owner has a higher one: epoch * 2^40 + etcd revision',
    gmt_modified DATETIME(3)       NOT NULL,
    PRIMARY KEY (group_name, table_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;

-- Append-only: who adds a task nearer than the horizon says so here.
CREATE TABLE IF NOT EXISTS `toc_0`.doorbell (
    id          BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
    table_no    SMALLINT UNSIGNED NOT NULL,
    job_id      BIGINT UNSIGNED   NOT NULL,
    biz_type    BIGINT UNSIGNED   NOT NULL,
    action_time DATETIME(3)       NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;

-- What was moved here from an outbox, a row of the outbox each, written with what it moved: what stands here is not moved
-- again. A row goes some time after its outbox row. An outbox that was emptied may give an id again, hence created.
CREATE TABLE IF NOT EXISTS `toc_0`.relayed (
    outbox     VARCHAR(64)     NOT NULL COMMENT 'identity of the outbox, in the comment of its table',
    id         BIGINT UNSIGNED NOT NULL COMMENT 'of its row',
    created    DATETIME(6)     NOT NULL COMMENT 'of its row, UTC',
    job_id     BIGINT UNSIGNED NOT NULL COMMENT 'the task that was added, or 0',
    gmt_create DATETIME(3)     NOT NULL,
    gone       DATETIME(3)     NULL COMMENT 'when the row was first seen to be gone from its outbox',
    PRIMARY KEY (outbox, id, created),
    KEY idx_gone (gone)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;

-- What this database knows of the marks of the cluster's other databases, each at most as high as that in its layout row.
-- A database whose own mark is far below one that is kept elsewhere is an older copy.
CREATE TABLE IF NOT EXISTS `toc_0`.mark (
    database_no  SMALLINT UNSIGNED NOT NULL,
    identity     VARCHAR(64)       NOT NULL COMMENT 'of the cluster: marks of another one do not count',
    mark         BIGINT            NOT NULL COMMENT 'Unix ms, as in the layout row of that database',
    gmt_modified DATETIME(3)       NOT NULL,
    PRIMARY KEY (database_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;

-- One task a row. All times are UTC, rounded up to the millisecond by who writes. Every statement of Tocsin names
-- its index, so statistics that are counted anew after each tenth of the rows would only cost.
CREATE TABLE IF NOT EXISTS `toc_0`.`task_0000` (
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
    claimed_by   VARCHAR(64)       NOT NULL DEFAULT '',
    dedup_key    VARBINARY(64)     NULL,
    last_error   VARCHAR(255)      NOT NULL DEFAULT '',
    attribute    VARCHAR(8192)     NOT NULL COMMENT 'the payload, passed through unread',
    headers      VARCHAR(1024)     NULL COMMENT 'JSON object of texts: trace context, tenant',
    biz_key      VARBINARY(64)     NOT NULL DEFAULT '' COMMENT 'the business key that biz_id is made of; empty: biz_id is the key',
    PRIMARY KEY (job_id),
    UNIQUE KEY uk_biz (biz_id, biz_type, dedup_key),
    KEY idx_due (status, action_time, biz_type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
