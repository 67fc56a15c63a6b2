package biztype

import (
	"context"
	"fmt"

	"github.com/tocsinhq/tocsin"
)

// SetPaused pauses a biz type, or lets it go on, in every database. It leaves the
// rest of the stored policy as it is, including changes made at the same time and
// fields that only a newer program knows. Databases that can't be written are named
// by the error, as in Apply. The next Apply of a file sets the flag as the file says.
func SetPaused(ctx context.Context, cfg tocsin.Config, name string, paused bool) (Result, error) {
	return apply(ctx, cfg, false, func(databases []database, _ error) ([]row, error) {
		r, err := stored(databases, name)
		if err != nil {
			return nil, err
		}
		if r.Policy, err = setFlag(r.Policy, "paused", paused); err != nil {
			return nil, fmt.Errorf("biz type %s: policy of revision %d: %w", name, r.Revision, err)
		}
		return []row{r}, nil
	})
}

// stored returns the newest row of a biz type. It fails if that row's policy can't be
// read.
func stored(databases []database, name string) (row, error) {
	var latest row
	for _, d := range databases {
		for _, r := range d.rows {
			if r.Name == name && r.Revision > latest.Revision {
				latest = r
			}
		}
	}
	if latest.Revision == 0 {
		return row{}, fmt.Errorf("%w %q: `tocsin biz list` names those that are applied", tocsin.ErrUnknownBizType, name)
	}
	_, err := latest.decode()
	return latest, err
}
