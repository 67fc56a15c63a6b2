package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	driverlib "github.com/go-sql-driver/mysql"
)

// ErrTimeUp is the error of a query that took longer than Within allows.
var ErrTimeUp = errors.New("the server ended the query")

// timeUp are the numbers of the errors with which MariaDB and MySQL end a query whose time is over.
var timeUp = []uint16{1969, 3024}

// Within returns a query with a time limit on the server, so that the query ends even if its caller has gone. MariaDB reads the limit
// from the prefix, which is a comment to MySQL; MySQL reads it from the hint in the first SELECT.
func Within(limit time.Duration, query []byte) []byte {
	before, after, _ := bytes.Cut(query, []byte("SELECT"))
	return fmt.Appendf(nil, "/*M! SET STATEMENT max_statement_time = %g FOR */ %sSELECT /*+ MAX_EXECUTION_TIME(%d) */%s",
		limit.Seconds(), before, limit.Milliseconds(), after)
}

// TimeUp returns ErrTimeUp for an error that says that a query of Within was ended, and other errors as they are.
func TimeUp(limit time.Duration, err error) error {
	var server *driverlib.MySQLError
	if errors.As(err, &server) && slices.Contains(timeUp, server.Number) {
		return fmt.Errorf("%w after %s: name a shorter time (%w)", ErrTimeUp, limit, err)
	}
	return err
}
