package chaos

// The statements of who breaks servers and reads past the nodes. {table} is a
// table's full name.
const (
	// userSQL makes the cluster's own user, which read_only binds. Root's rights
	// would let it write all the same.
	userSQL = `CREATE USER IF NOT EXISTS tocsin@'%'`

	// grantSQL gives it what a Tocsin user needs. {prefix} is the databases'.
	grantSQL = "GRANT ALL ON `{prefix}\\_%`.* TO tocsin@'%'"

	// readOnlySQL makes a server refuse writes; readWriteSQL ends that.
	readOnlySQL  = `SET GLOBAL read_only = 1`
	readWriteSQL = `SET GLOBAL read_only = 0`

	// wrongSQL gives a database the layout row of another cluster; rightSQL gives it its own. {cluster} is that.
	wrongSQL = "UPDATE `{database}`.layout SET cluster_id = 'other'"
	rightSQL = "UPDATE `{database}`.layout SET cluster_id = '{cluster}'"

	// hideSQL takes the layout row away with its table; showSQL brings it back.
	hideSQL = "RENAME TABLE `{database}`.layout TO `{database}`.layout_away"
	showSQL = "RENAME TABLE `{database}`.layout_away TO `{database}`.layout"

	// tablesSQL lists the tables of a database.
	tablesSQL = `SELECT /* tocsin chaos */
    table_name
FROM information_schema.tables
WHERE table_schema = ?`

	// sumSQL tells whether a table has changed.
	sumSQL = "CHECKSUM TABLE `{database}`.`{table}`"

	// lockSQL keeps everybody else out of one table until unlockSQL.
	lockSQL   = `LOCK TABLES {table} WRITE`
	unlockSQL = `UNLOCK TABLES`

	// openSQL counts what is neither done, nor cancelled, nor dead.
	openSQL = `SELECT /* tocsin chaos */
    COUNT(*)
FROM {table}
WHERE status IN (0, 1)`

	// rowsSQL reads every row.
	rowsSQL = `SELECT /* tocsin chaos */
    job_id,
    biz_id,
    biz_type,
    status,
    action_time,
    due_time,
    attempts,
    crashes,
    version,
    claimed_by,
    last_error
FROM {table}`
)

// countNodes counts the nodes that were seen lately, where nobody owns tables.
const countNodes = `
SELECT /* tocsin chaos */ COUNT(*)
FROM {database}.session
WHERE seat = 1
  AND gmt_modified > UTC_TIMESTAMP(3) - INTERVAL 5 SECOND`

// The statements of services on business servers, of any kind. {biz_id} and so on are numbers.
const (
	// makeShopSQL makes the database of a business server of MySQL.
	makeShopSQL = `CREATE DATABASE IF NOT EXISTS shop_0`

	// makeOrdersSQL makes the table of the business. A row is one operation on an order, in the transaction of the operation.
	makeOrdersSQL = `CREATE TABLE orders (biz_id BIGINT NOT NULL, seq INT NOT NULL, PRIMARY KEY (biz_id, seq))`

	// orderSQL writes an operation.
	orderSQL = `INSERT /* tocsin chaos */ INTO orders (biz_id, seq) VALUES ({biz_id}, {seq})`

	// lockOrderSQL locks an order.
	lockOrderSQL = `SELECT /* tocsin chaos */ seq FROM orders WHERE biz_id = {biz_id} AND seq = 0 FOR UPDATE`

	// lastOutboxSQL and lastOutboxPgSQL read the id that the outbox gave last in this session.
	lastOutboxSQL   = `SELECT /* tocsin chaos */ LAST_INSERT_ID()`
	lastOutboxPgSQL = `SELECT /* tocsin chaos */ lastval()`

	// readOrdersSQL reads all operations.
	readOrdersSQL = `SELECT /* tocsin chaos */ biz_id, seq FROM orders`

	// countOutboxSQL counts the rows of an outbox.
	countOutboxSQL = `SELECT /* tocsin chaos */ COUNT(*) FROM tocsin_outbox`
)

// ledgerSQL reads what relays have moved into a database.
const ledgerSQL = `
SELECT /* tocsin chaos */ outbox, id, job_id, gmt_create
FROM {database}.relayed`
