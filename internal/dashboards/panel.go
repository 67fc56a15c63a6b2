package dashboards

import "github.com/grafana/grafana-foundation-sdk/go/units"

// board is one dashboard.
type board struct {
	name  string // of its file; the uid is "tocsin-" and the name
	title string
	means string
	vars  []variable
	rows  []row
}

// variable is filled with the values that a label has in a metric.
type variable struct{ name, label, metric string }

type row struct {
	title  string
	panels []panel
}

// panel is a graph or a number.
type panel struct {
	title   string
	means   string // what it shows, and what a bad value means
	look    look
	unit    string // of units
	queries []query
	limits  limits
	states  []state // what the values 0, 1, 2, ... mean; of a panel with the look states
	signed  bool    // values below 0 make sense
	runbook string  // an alert: the panel links to its section of docs/runbook.md; "" for none
	wide    uint32  // of 24; 0: the default of its look
}

// query is in PromQL, with a name for each of its series.
type query struct{ expr, legend string }

// state is the meaning of a value, with Grafana's name of a colour.
type state struct{ word, color string }

// Colours.
const (
	green  = "green"
	blue   = "blue"
	yellow = "yellow"
	red    = "red"
)

// look is how a panel shows its queries.
type look int

const (
	lines   look = iota
	stacked      // lines on top of one another, filled
	number       // the last value, with a small graph
	states       // a coloured bar for each series over time
)

// limits colour a value: from warn on it is yellow, from bad on red. If bad is below warn, low values are bad. The zero value
// colours nothing.
type limits struct{ warn, bad float64 }

// Units.
const (
	seconds   = units.Seconds
	perSec    = units.CountsPerSecond
	share     = units.PercentUnit
	count     = units.Short
	bytesUsed = units.BytesIEC
)

// maxQueries is how many queries a panel may have.
const maxQueries = 12

// span and height of a panel on Grafana's grid, which is 24 wide.
func (p panel) span() uint32 {
	switch {
	case p.wide != 0:
		return p.wide
	case p.look == number:
		return 4
	}
	return 12
}

func (p panel) height() uint32 {
	if p.look == number {
		return 4
	}
	return 8
}
