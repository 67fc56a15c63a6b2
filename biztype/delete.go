package biztype

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// deleteType forgets one type. Primary key. Parameters: number, name, revision. Zero rows: it was changed.
const deleteType = `DELETE /* tocsin biz delete */ FROM {database}.biz_type
WHERE number = ?
    AND name = ?
    AND revision = ?`

// Delete forgets a biz type in every database, and returns its number, which no biz type gets again by itself. refers says what
// still refers to the biz type, such as "3 tasks"; "": nothing. An alarm of another biz type is found here. All databases must
// answer. Running clients go on with the number, and running nodes with the policy.
func Delete(ctx context.Context, cfg tocsin.Config, name string, refers func() (string, error)) (number uint64, err error) {
	servers, err := openServers(cfg, 1)
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.CloseServers(servers) }()
	databases, failed := readAll(ctx, cfg, servers, 0)
	if failed != nil {
		return 0, fmt.Errorf("delete biz type %s needs every database: %w", name, failed)
	}
	r, err := stored(databases, name)
	if r.Revision == 0 {
		return 0, err
	}
	policies, _ := decodeAll(latestOf(databases)) // one that can't be read has no alarm that is raised
	for _, p := range policies {
		if p.Alarm != nil && p.Alarm.To == name {
			return 0, fmt.Errorf("biz type %s is in use: it delivers the alarms of %s", name, p.Name)
		}
	}
	switch what, err := refers(); {
	case err != nil:
		return 0, fmt.Errorf("find out what refers to biz type %s: %w", name, err)
	case what != "":
		return 0, fmt.Errorf("biz type %s is in use: %s", name, what)
	}
	for _, d := range slices.Backward(databases) { // the lowest, which gives numbers, is the last one
		if err := d.forget(ctx, r.Number); err != nil {
			return 0, fmt.Errorf("delete biz type %s: %w", name, err)
		}
	}
	return r.Number, nil
}

// forget deletes a type that is as it was read.
func (d database) forget(ctx context.Context, number uint64) error {
	r, there := d.rows[number]
	if !there {
		return nil
	}
	tried := false
	err := mysql.Retry(ctx, func() error {
		return mysql.InTx(ctx, d.server.DB, func(conn *sql.Conn) error {
			if _, err := d.judge(ctx, conn); err != nil {
				return err
			}
			res, err := conn.ExecContext(ctx, d.sql(deleteType), r.Number, r.Name, r.Revision)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 1 || tried {
				return err
			}
			tried = true
			return errChanged
		})
	})
	return d.explain("delete", err)
}
