package chaos

// The log of schedules and runs, which triggers write. {database} and {table} are full names.
const (
	makeLogSQL = `CREATE DATABASE IF NOT EXISTS chaos_log`

	// makeRevisedSQL makes the table of the schedules' revisions.
	makeRevisedSQL = `CREATE TABLE chaos_log.revised (
    seq         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at          DATETIME(6)     NOT NULL,
    schedule_id BIGINT UNSIGNED NOT NULL,
    revision    INT UNSIGNED    NOT NULL,
    state       VARCHAR(16)     NOT NULL,
    cron        VARCHAR(255)    NOT NULL,
    zone        VARCHAR(64)     NOT NULL,
    anchor      DATETIME(3)     NOT NULL,
    attribute   VARCHAR(8192)   NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin`

	// makeFiringSQL makes the table of the runs: made, ended, deleted.
	makeFiringSQL = `CREATE TABLE chaos_log.firing (
    seq         BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    what        CHAR(1)           NOT NULL,
    at          DATETIME(6)       NOT NULL,
    job_id      BIGINT UNSIGNED   NOT NULL,
    biz_id      BIGINT UNSIGNED   NOT NULL,
    dedup_key   VARBINARY(64)     NULL,
    status      TINYINT UNSIGNED  NOT NULL,
    action_time DATETIME(3)       NOT NULL,
    due_time    DATETIME(3)       NOT NULL,
    attempts    SMALLINT UNSIGNED NOT NULL,
    crashes     SMALLINT UNSIGNED NOT NULL,
    version     INT UNSIGNED      NOT NULL,
    last_error  VARCHAR(100)      NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin`

	// nowSQL is the time at which a trigger runs, in UTC. UTC_TIMESTAMP is when its statement began, and may have waited for a
	// lock since.
	nowSQL = `SYSDATE(6) + INTERVAL TIMESTAMPDIFF(MINUTE, NOW(), UTC_TIMESTAMP()) MINUTE`

	noteRevisedSQL = `INSERT INTO chaos_log.revised (at, schedule_id, revision, state, cron, zone, anchor, attribute)
    VALUES (` + nowSQL + `, NEW.schedule_id, NEW.revision, NEW.state, NEW.cron, NEW.zone, NEW.anchor, NEW.attribute)`

	onCreateSQL = `CREATE TRIGGER {database}.chaos_create AFTER INSERT ON {database}.schedule FOR EACH ROW
` + noteRevisedSQL

	onReviseSQL = `CREATE TRIGGER {database}.chaos_revise AFTER UPDATE ON {database}.schedule FOR EACH ROW
IF NEW.revision <> OLD.revision OR NEW.state <> OLD.state THEN
    ` + noteRevisedSQL + `;
END IF`

	// onForgetSQL notes the end of a schedule as a revision after the last one.
	onForgetSQL = `CREATE TRIGGER {database}.chaos_forget AFTER DELETE ON {database}.schedule FOR EACH ROW
INSERT INTO chaos_log.revised (at, schedule_id, revision, state, cron, zone, anchor, attribute)
    VALUES (` + nowSQL + `, OLD.schedule_id, OLD.revision + 1, '` + stateDeleted + `', OLD.cron, OLD.zone, OLD.anchor, OLD.attribute)`

	noteFiringSQL = `INSERT INTO chaos_log.firing (what, at, job_id, biz_id, dedup_key, status, action_time, due_time, attempts, crashes, version, last_error)
    VALUES `

	// onMakeSQL notes a run that is made, with its gmt_create in place of an error.
	onMakeSQL = `CREATE TRIGGER {database}.chaos_make_{no} AFTER INSERT ON {table} FOR EACH ROW
IF ORD(NEW.dedup_key) = 0 AND LENGTH(NEW.dedup_key) > 0 THEN
    ` + noteFiringSQL + `('m', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NEW.dedup_key, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, CAST(NEW.gmt_create AS CHAR));
END IF`

	// onEndSQL notes the end of a row, each claim of it with the claimer, and each time that it is put off to.
	onEndSQL = `CREATE TRIGGER {database}.chaos_end_{no} AFTER UPDATE ON {table} FOR EACH ROW
IF NEW.status <> OLD.status AND NEW.status NOT IN (0, 1) THEN
    ` + noteFiringSQL + `('e', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NULL, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, LEFT(NEW.last_error, 100));
ELSEIF NEW.status = 1 AND (OLD.status <> 1 OR NEW.claimed_by <> OLD.claimed_by) THEN
    ` + noteFiringSQL + `('c', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NULL, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, LEFT(NEW.claimed_by, 100));
ELSEIF NEW.status = 0 AND NEW.action_time <> OLD.action_time THEN
    ` + noteFiringSQL + `('w', ` + nowSQL + `, NEW.job_id, NEW.biz_id, NULL, NEW.status, NEW.action_time, NEW.due_time,
        NEW.attempts, NEW.crashes, NEW.version, '');
END IF`

	onDeleteSQL = `CREATE TRIGGER {database}.chaos_delete_{no} AFTER DELETE ON {table} FOR EACH ROW
    ` + noteFiringSQL + `('d', ` + nowSQL + `, OLD.job_id, OLD.biz_id, NULL, OLD.status, OLD.action_time, OLD.due_time,
        OLD.attempts, OLD.crashes, OLD.version, '')`

	// readRevisedSQL and readFiringSQL read the log, oldest first.
	readRevisedSQL = `SELECT /* tocsin chaos */
    at,
    schedule_id,
    revision,
    state,
    cron,
    zone,
    anchor,
    attribute
FROM chaos_log.revised
ORDER BY seq`

	readFiringSQL = `SELECT /* tocsin chaos */
    what,
    at,
    job_id,
    biz_id,
    dedup_key,
    status,
    action_time,
    due_time,
    attempts,
    crashes,
    version,
    last_error
FROM chaos_log.firing
ORDER BY seq`

	// nextRunsSQL reads the next runs of a schedule. Parameters: biz_id, how many.
	nextRunsSQL = `SELECT /* tocsin chaos */
    job_id
FROM {table}
WHERE biz_id = ?
    AND status = 0
    AND dedup_key IS NOT NULL
ORDER BY action_time
LIMIT ?`

	// questionsSQL reads how many statements a server was sent.
	questionsSQL = `SHOW GLOBAL STATUS LIKE 'Questions'`
)
