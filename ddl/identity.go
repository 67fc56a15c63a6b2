package ddl

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/seam"
)

// newIdentity makes a random identity, which tells a cluster from every other with
// the same id.
func newIdentity() string { return strings.ToLower(rand.Text()) }

// plannedIdentity returns the identity that a plan gives to a cluster. It is derived
// from the config, without chance, so that the same plan can be made again.
func plannedIdentity(cfg tocsin.Config, cluster string) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q", cluster, named(cfg.Layout))
	for _, spec := range seam.Specs(cfg) {
		fmt.Fprintf(hash, " %q %q %v", spec.Name, mysql.Address(spec.DSN), spec.Databases)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil))[:26])
}

// identityOf returns the identity that most of the databases have; "" if none has
// one.
func identityOf(rows map[int]layoutRow) string {
	var all layoutrow.Identities
	for db, row := range rows {
		all.Put(db, row.Identity)
	}
	return all.Agreed()
}

// mark writes the identity into a layout row that has none, and returns the row as
// stored. If the user lacks the right, or a transaction is in the way, that is only a
// warning: all works without an identity.
func (a *application) mark(ctx context.Context, s *site, db int, row layoutRow) (layoutRow, error) {
	if a.opt.Identity == "" {
		return row, nil
	}
	err := mysql.Retry(ctx, func() error {
		_, err := s.DB.ExecContext(ctx, a.row(db).mark(s.layout.Database(db)))
		return err
	})
	switch mysql.ClassOf(err) {
	case mysql.OK:
		return s.readLayout(ctx, db)
	case mysql.Denied:
		a.warn(fmt.Sprintf("%s has no identity, and the user may not give it one: let an administrator run this again (%v)", s.place(db), err))
		return row, nil
	case mysql.Contended:
		a.warn(fmt.Sprintf("%s has no identity, as an open transaction of somebody holds its layout table: run this again", s.place(db)))
		return row, nil
	}
	return row, fmt.Errorf("write the identity of %s: %w", s.place(db), err)
}

func (a *application) warn(text string) {
	a.count(func(r *Result) {
		if r.Warning != "" {
			text = "; " + text
		}
		r.Warning += text
	})
}
