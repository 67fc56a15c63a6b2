package tocsin

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// SchemaVersion is the version of the tables that this program expects.
const SchemaVersion = layoutrow.SchemaVersion

// layoutRow is what a database says it is part of, and facts of its server.
type layoutRow struct {
	layoutrow.Row
	packet int
	now    time.Time
}

func (r *layoutRow) scan(scan func(...any) error) error {
	var now string
	if err := scan(append(r.Fields(), &r.packet, &now)...); err != nil {
		return err
	}
	return setTime(&r.now, now)
}
