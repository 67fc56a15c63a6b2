package biztype

import (
	"context"
	"fmt"

	"github.com/tocsinhq/tocsin"
)

// SetPaused pauses a biz type, or lets it go on, in every database, and leaves
// the rest of its policy as it is stored, whoever changes that at the same time.
// Servers that can't be reached are named by the error, as in Apply. The next
// Apply of a file says again what the file says.
func SetPaused(ctx context.Context, cfg tocsin.Config, name string, paused bool) (Result, error) {
	return apply(ctx, cfg, func(databases []database) ([]Policy, error) {
		p, err := stored(databases, name)
		p.Paused = paused
		return []Policy{p}, err
	})
}

// stored gives the newest policy of a biz type.
func stored(databases []database, name string) (Policy, error) {
	var latest row
	for _, d := range databases {
		for _, r := range d.rows {
			if r.Name == name && r.Revision > latest.Revision {
				latest = r
			}
		}
	}
	if latest.Revision == 0 {
		return Policy{}, fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", name)
	}
	return latest.decode()
}
