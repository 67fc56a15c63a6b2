package ddl

import (
	"context"
	"fmt"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// Finished says what Finish found and did.
type Finished struct {
	Version   int `json:"version"`    // schema version of all databases, and the oldest that programs may be for
	WorkedFor int `json:"worked_for"` // the oldest schema version that programs could be for until now
	Databases int `json:"databases"`  // how many were changed
}

// Finish ends an upgrade: from then on every database refuses programs for an older schema version, and programs may
// write the newest columns and tables. It fails unless all tables of all servers have the newest version. It may be run
// again, and goes on where it was interrupted.
func Finish(ctx context.Context, cfg tocsin.Config) (Finished, error) {
	findings, err := Verify(ctx, cfg)
	if err != nil {
		return Finished{}, err
	}
	for _, f := range findings {
		if !f.Warning {
			return Finished{}, fmt.Errorf("the tables are not of schema version %d: %s", layoutrow.SchemaVersion, f)
		}
	}
	sites, err := surveySites(ctx, cfg, 1)
	if err != nil {
		return Finished{}, err
	}
	defer func() { _ = closeSites(sites) }()
	done := Finished{Version: layoutrow.SchemaVersion, WorkedFor: layoutrow.SchemaVersion}
	for _, s := range sites {
		for _, row := range s.rows {
			done.WorkedFor = min(done.WorkedFor, row.WorksWith)
		}
		n, err := s.finish(ctx)
		done.Databases += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// finish returns how many databases of a server it changed.
func (s *site) finish(ctx context.Context) (changed int, err error) {
	for _, db := range s.Databases {
		query := strings.ReplaceAll(in(s.layout.Database(db), finishLayout), "{version}", fmt.Sprint(layoutrow.SchemaVersion))
		n, err := s.update(ctx, db, query)
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}
