package ddl

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// errNoLock means that a user lock with a random name could not be taken.
var errNoLock = errors.New("it gave no user lock")

// apart refuses a single server under two addresses: a copy would be compared with
// itself.
func (p *pair) apart(ctx context.Context) error {
	from, err := p.from.uuid(ctx)
	if err != nil {
		return err
	}
	to, err := p.to.uuid(ctx)
	if err != nil {
		return err
	}
	same := from == to
	if from == "" && to == "" {
		if same, err = p.shareLocks(ctx); err != nil {
			return err
		}
	}
	switch {
	case !same:
		return nil
	case from != "":
		return fmt.Errorf("servers %s and %s are the same one: nothing moves (both have server_uuid %s: if the new one was made from a copy of the old one's files, remove its auto.cnf and restart it)",
			p.from.Name, p.to.Name, from)
	}
	return fmt.Errorf("servers %s and %s are the same one: nothing moves", p.from.Name, p.to.Name)
}

// uuid reads the server's server_uuid; "" if it has none.
func (c *dbCopy) uuid(ctx context.Context) (string, error) {
	var name, value string
	err := c.DB.QueryRowContext(ctx, selectUUID).Scan(&name, &value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("server %s: %w", c.Name, err)
	}
	return value, nil
}

// shareLocks reports whether a user lock taken on one side is seen from the other.
func (p *pair) shareLocks(ctx context.Context) (bool, error) {
	conn, err := p.from.DB.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("server %s: %w", p.from.Name, err)
	}
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }() // closes the connection, which frees the lock
	name := "tocsin-" + rand.Text()
	var taken sql.NullInt64
	err = conn.QueryRowContext(ctx, takeLock, name).Scan(&taken)
	if err == nil && taken.Int64 != 1 {
		err = errNoLock
	}
	if err != nil {
		return false, fmt.Errorf("tell servers %s and %s apart: server %s: %w", p.from.Name, p.to.Name, p.from.Name, err)
	}
	var holder sql.NullInt64
	if err := p.to.DB.QueryRowContext(ctx, selectLock, name).Scan(&holder); err != nil {
		return false, fmt.Errorf("tell servers %s and %s apart: server %s: %w", p.from.Name, p.to.Name, p.to.Name, err)
	}
	return holder.Valid, nil
}
