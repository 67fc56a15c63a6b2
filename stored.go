package tocsin

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

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
