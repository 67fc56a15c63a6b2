package layoutrow

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// readSQL reads the layout row of one database, whose number by the config is {number}, and facts of its server. Primary key. Whole
// milliseconds would be up to one behind the clock.
const readSQL = `SELECT /* tocsin layout */
    {number},
    cluster_id,
    identity,
    database_no,
    databases_total,
    tables_per_database,
    hash,
    doorbell_horizon_ms,
    schema_version,
    works_with,
    state,
    ownership,
    mark,
    {grace},
    @@max_allowed_packet,
    CAST(UTC_TIMESTAMP(6) AS CHAR)
FROM {database}.layout
WHERE id = 1`

// graceSQL is {grace} for those who sweep, or compare theirs. If the table is of schema version 2, which has no such column, the name
// refers to the outer query's column, which is 0.
const graceSQL = `(SELECT (SELECT sweep_grace_ms FROM {database}.layout WHERE id = 1) FROM (SELECT 0 AS sweep_grace_ms) AS older)`

// readAtOnce bounds the databases that one statement reads.
const readAtOnce = 64

// Queryer is a pool or one of its connections.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Read reads the layout rows of a server's databases, by number. failed has the reasons why others could not be read. name
// returns the name of a database. grace is whether GraceMS is read too, which clients, who look once a second, have no use for. The error
// concerns the whole server.
func Read(ctx context.Context, over Queryer, databases []int, name func(database int) string, grace bool) (rows map[int]Row, failed map[int]error, err error) {
	rows, failed = make(map[int]Row, len(databases)), map[int]error{}
	for part := range slices.Chunk(databases, readAtOnce) {
		err := readInto(ctx, over, part, name, grace, rows)
		if err == nil {
			continue
		}
		if mysql.Unanswered(err) {
			return nil, nil, err
		}
		if len(part) == 1 {
			failed[part[0]] = err
			continue
		}
		for _, database := range part { // so that a fault of one hides no other
			if err := readInto(ctx, over, []int{database}, name, grace, rows); mysql.Unanswered(err) {
				return nil, nil, err
			} else if err != nil {
				failed[database] = err
			}
		}
	}
	return rows, failed, nil
}

func readInto(ctx context.Context, over Queryer, databases []int, name func(database int) string, grace bool, into map[int]Row) error {
	parts, text := make([]string, len(databases)), strings.Replace(readSQL, "{grace}", "0", 1)
	if grace {
		text = strings.Replace(readSQL, "{grace}", graceSQL, 1)
	}
	for i, database := range databases {
		parts[i] = strings.NewReplacer("{database}", name(database), "{number}", strconv.Itoa(database)).Replace(text)
	}
	found, err := over.QueryContext(ctx, strings.Join(parts, "\nUNION ALL\n"))
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var r Row
		var clock string
		err := found.Scan(&r.Asked, &r.Cluster, &r.Identity, &r.Number, &r.Databases, &r.Tables, &r.Hash, &r.HorizonMS,
			&r.Version, &r.WorksWith, &r.State, &r.Ownership, &r.Mark, &r.GraceMS, &r.Packet, &clock)
		if err != nil {
			return err
		}
		if r.Clock, err = time.Parse("2006-01-02 15:04:05.000000", clock); err != nil {
			return err
		}
		into[r.Asked] = r
	}
	return found.Err()
}
