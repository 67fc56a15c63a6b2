package client

import (
	"slices"
	"strconv"
	"time"
)

// The statements of AddMany are written straight into one packet: for each table one
// insert of the rows without a dedup_key and one of the others, and one ring for each
// database, in one transaction. A row whose dedup_key exists already changes nothing and
// does not count. So does a row whose job_id exists if an earlier try may have stored it;
// else its job_id is another task's, maybe one with the same content, and ends the packet. If a row has a dedup_key,
// the rings and the commit follow in a second packet, once it is known which rows are new: a packet that has committed
// must not fail any more, or its rows would be sent again. Times are computed here, by the server's clock as read when
// the call began, since a ring must hold exactly the action_time of its row.
const (
	addManySQL = `INSERT /* tocsin add many */` + addInto + `VALUES `

	addManyEndSQL = `
ON DUPLICATE KEY UPDATE job_id = job_id;
`

	// ringManySQL rings for rows that are near.
	ringManySQL = `INSERT /* tocsin ring many */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time)
VALUES `
)

// packet is the text of one chunk.
type packet struct {
	now    time.Time // by the server's clock, rounded up to the millisecond
	text   []byte
	args   []any
	ahead  int              // statements before the inserts
	tables [][]*Row         // the rows of each insert, in order
	waits  bool             // the transaction stays open until it is known which rows are new
	partly map[int]standing // index of an insert that left rows out -> what is stored
}

// packet writes the transaction for rows, which are in order of their tables.
// maybe says that an earlier try may have stored them.
func (b *batch) packet(rows []*Row, maybe bool) *packet {
	p := &packet{now: At(b.facts.clock()).at, text: make([]byte, 0, 256*len(rows)), args: make([]any, 0, 2*len(rows)), partly: make(map[int]standing)}
	p.text = append(p.text, "BEGIN;\n"...)
	p.ahead = 1
	if b.ledger != nil {
		groups(rows, func(r *Row) int { return b.client.layout.DatabaseOf(r.table) }, func(group []*Row) {
			p.text = append(append(p.text, b.ledger.values(group)...), ";\n"...)
			p.ahead++
		})
	}
	p.waits = slices.ContainsFunc(rows, hasKey)
	groups(rows, insertOf, func(group []*Row) {
		p.tables = append(p.tables, group)
		end := addManyEndSQL
		if !hasKey(group[0]) && (b.ledger != nil || !maybe) { // the ledger tells what an earlier try has stored
			end = ";\n"
		}
		p.insert(b.client.layout, group, end)
	})
	if !p.waits {
		p.commit(b.client.layout, p.near(rows, b.facts.horizon))
	}
	return p
}

func (p *packet) query() string { return string(p.text) }

// end returns the second packet of a packet that waits. It has no arguments.
func (p *packet) end(b *batch) string {
	p.text = p.text[:0]
	var stored, others []*Row
	for i, group := range p.tables {
		found, some := p.partly[i]
		for _, r := range group {
			if !some || found.has(r) {
				stored = append(stored, r)
			} else {
				others = append(others, r)
			}
		}
	}
	if b.ledger != nil {
		groups(others, func(r *Row) int { return b.client.layout.DatabaseOf(r.table) }, func(group []*Row) {
			p.text = append(append(p.text, b.ledger.existing(group)...), ";\n"...)
		})
	}
	p.commit(b.client.layout, p.near(stored, b.facts.horizon))
	return p.query()
}

// collided reports whether a row is not stored as its id is taken.
func (p *packet) collided() bool {
	for i, found := range p.partly {
		if slices.ContainsFunc(p.tables[i], func(r *Row) bool { return !found.has(r) && found.holder(r) == nil }) {
			return true
		}
	}
	return false
}

// stranger returns an error if the task of another business key has the dedup_key of a row.
func (p *packet) stranger() error {
	for i, found := range p.partly {
		for _, r := range p.tables[i] {
			if s := found.holder(r); s != nil && !found.has(r) && s.bizKey != r.bizKey {
				return r.stranger(s.id, s.bizKey)
			}
		}
	}
	return nil
}

// commit rings for the rows that are near and ends the transaction.
func (p *packet) commit(l Layout, near []*Row) {
	groups(near, func(r *Row) int { return l.DatabaseOf(r.table) }, func(group []*Row) { p.ring(l, group) })
	p.text = append(p.text, "COMMIT"...)
}

// insert writes the insert of one table's rows.
func (p *packet) insert(l Layout, rows []*Row, end string) {
	p.text = append(p.text, l.Render(addManySQL, rows[0].table)...)
	for i, r := range rows {
		if i > 0 {
			p.text = append(p.text, ",\n"...)
		}
		p.text = append(p.text, '(')
		p.text = strconv.AppendUint(p.text, r.id, 10)
		p.text = append(p.text, ",UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),"...)
		p.text = strconv.AppendUint(p.text, r.bizID, 10)
		p.text = append(p.text, ',')
		p.text = strconv.AppendUint(p.text, r.bizType, 10)
		p.text = append(p.text, ",0,?,?,"...)
		p.args = append(p.args, nullable(r.dedup), r.payload)
		if r.headers == nil && r.bizKey == "" {
			p.text = append(p.text, "NULL,'',"...)
		} else {
			p.text = append(p.text, "?,?,"...)
			p.args = append(p.args, nullable(r.headers), []byte(r.bizKey))
		}
		p.time(r.when.due(p.now))
		p.text = append(p.text, ',')
		p.time(r.when.action(p.now))
		p.text = append(p.text, ')')
	}
	p.text = append(p.text, end...)
}

// ring writes the ring of one database's rows.
func (p *packet) ring(l Layout, rows []*Row) {
	p.text = append(p.text, l.Render(ringManySQL, rows[0].table)...)
	for i, r := range rows {
		if i > 0 {
			p.text = append(p.text, ",\n"...)
		}
		p.text = append(p.text, '(')
		p.text = strconv.AppendInt(p.text, int64(r.table), 10)
		p.text = append(p.text, ',')
		p.text = strconv.AppendUint(p.text, r.id, 10)
		p.text = append(p.text, ',')
		p.text = strconv.AppendUint(p.text, r.bizType, 10)
		p.text = append(p.text, ',')
		p.time(r.when.action(p.now))
		p.text = append(p.text, ')')
	}
	p.text = append(p.text, ";\n"...)
}

func (p *packet) time(t time.Time) {
	p.text = append(p.text, '\'')
	p.text = append(t.AppendFormat(p.text, TimeForm), '\'')
}

// near picks the rows for which the doorbell rings.
func (p *packet) near(rows []*Row, horizon time.Duration) []*Row {
	var near []*Row
	for _, r := range rows {
		if r.when.until(p.now) < horizon {
			near = append(near, r)
		}
	}
	return near
}

func tableOf(r *Row) int { return r.table }

func hasKey(r *Row) bool { return r.dedup != nil }

// insertOf is the same for rows of one insert.
func insertOf(r *Row) int {
	if hasKey(r) {
		return 2*r.table + 1
	}
	return 2 * r.table
}

// groups calls do for each run of rows with the same key.
func groups(rows []*Row, key func(*Row) int, do func([]*Row)) {
	for start := 0; start < len(rows); {
		end := start + 1
		for end < len(rows) && key(rows[end]) == key(rows[start]) {
			end++
		}
		do(rows[start:end])
		start = end
	}
}
