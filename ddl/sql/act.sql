-- Who changed what: a change that somebody asked for a row, written after it, as far as that succeeds at once. Rows of all databases
-- together are the list; each process writes into the first one that it can. Purged from the lowest act_id on.
CREATE TABLE IF NOT EXISTS `{database}`.act (
    act_id    BIGINT UNSIGNED NOT NULL COMMENT '41 bits ms since 2026-01-01 UTC, by the clock of who writes; 22 bits random',
    person    VARCHAR(64)     NOT NULL COMMENT 'name of the token, or user of the console or of the host',
    via       VARCHAR(16)     NOT NULL COMMENT 'api, console or command',
    operation VARCHAR(64)     NOT NULL COMMENT 'as in the log of the HTTP API',
    object    VARCHAR(255)    NOT NULL COMMENT 'what it was about',
    reason    VARCHAR(255)    NOT NULL DEFAULT '' COMMENT 'as given',
    outcome   VARCHAR(255)    NOT NULL COMMENT 'ok, or what came of it, or why it failed',
    PRIMARY KEY (act_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin STATS_AUTO_RECALC = 0;
