package tocsin

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// SchemaVersion is the version of the tables that this program writes for, the newest that it knows. It works with
// tables of older versions too, and never writes what came with a version before `tocsin ddl finish` says that it may.
const SchemaVersion = layoutrow.SchemaVersion

// layoutRow is what a database says it is part of, and facts of its server.
type layoutRow struct {
	layoutrow.Row
	packet int
	now    time.Time
}

func (r *layoutRow) scan(scan func(...any) error) (err error) {
	var now string
	if err := scan(append(r.Fields(), &r.Mark, &r.packet, &now)...); err != nil {
		return err
	}
	r.now, err = time.Parse(microForm, now) // whole milliseconds would be up to one behind the clock
	return err
}
