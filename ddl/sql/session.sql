-- Sessions: who may claim rows of this database. Each process that delivers has one here, and raises beat twice a second. Others end a
-- session whose beat stands still, by their own clocks: they delete its row, and recover what it had claimed.
CREATE TABLE IF NOT EXISTS `{database}`.session (
    id           CHAR(12) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'random, never used again',
    group_name   VARCHAR(64)      NOT NULL,
    node         VARCHAR(64)      NOT NULL,
    incarnation  CHAR(12) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'random, the same in all sessions of one process',
    beat         BIGINT UNSIGNED  NOT NULL,
    seat         TINYINT UNSIGNED NOT NULL COMMENT '1: it looks at tables; 0: of a sweep',
    draining     TINYINT UNSIGNED NOT NULL COMMENT '1: it leaves, and claims nothing more soon',
    unable       TINYINT UNSIGNED NOT NULL COMMENT '1: it can beat but not work in this database',
    about_no     BIGINT UNSIGNED  NOT NULL COMMENT 'grows when draining, unable or session_about changes',
    gmt_create   DATETIME(3)      NOT NULL,
    gmt_modified DATETIME(3)      NOT NULL COMMENT 'of the last beat, for people: no program judges by it',
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
