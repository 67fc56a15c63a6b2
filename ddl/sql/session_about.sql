-- What the process of a session says of itself. It is a table of its own, since a binary log with full rows would hold it twice for each beat.
CREATE TABLE IF NOT EXISTS `{database}`.session_about (
    id             CHAR(12) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the session',
    about_no       BIGINT UNSIGNED NOT NULL COMMENT 'grows with each change, so that a late write changes nothing back',
    schema_version INT UNSIGNED    NOT NULL COMMENT 'that the program is for',
    about          VARCHAR(8192)   NOT NULL COMMENT 'JSON',
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
