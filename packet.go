package tocsin

import (
	"strconv"
	"time"
)

// The statements of AddMany are written straight into one packet: one insert
// for each table, one ring for each database, in one transaction. A row whose
// job_id or dedup_key is taken changes nothing and does not count. Times are
// worked out here, by the server's clock as it was read when the call began: a
// ring must hold the very action_time of its row.
const (
	addManySQL    = `INSERT /* tocsin add many */` + addInto + `VALUES `
	addManyEndSQL = `
ON DUPLICATE KEY UPDATE job_id = job_id;
`

	// ringManySQL rings for rows that are near; some may turn out not to have
	// been inserted, whoever hears of those finds no such task.
	ringManySQL = `INSERT /* tocsin ring many */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time)
VALUES `
)

// packet is the text of one chunk.
type packet struct {
	now    time.Time // by the server's clock, rounded up to the millisecond
	text   []byte
	args   []any
	tables [][]*row // the rows of each insert, in order
}

// packet writes the transaction for rows, which are in order of their tables.
func (b *batch) packet(rows []*row) *packet {
	p := &packet{now: At(b.facts.clock()).at, text: make([]byte, 0, 256*len(rows)), args: make([]any, 0, 2*len(rows))}
	p.text = append(p.text, "BEGIN;\n"...)
	groups(rows, tableOf, func(group []*row) {
		p.tables = append(p.tables, group)
		p.insert(b.client.layout, group)
	})
	groups(p.near(rows, b.facts.horizon), func(r *row) int { return b.client.layout.DatabaseOf(r.table) }, func(group []*row) {
		p.ring(b.client.layout, group)
	})
	p.text = append(p.text, "COMMIT"...)
	return p
}

func (p *packet) query() string { return string(p.text) }

// insert writes the insert of one table's rows.
func (p *packet) insert(l Layout, rows []*row) {
	p.text = append(p.text, l.render(addManySQL, rows[0].table)...)
	for i, r := range rows {
		if i > 0 {
			p.text = append(p.text, ",\n"...)
		}
		p.text = append(p.text, '(')
		p.text = strconv.AppendUint(p.text, uint64(r.id), 10)
		p.text = append(p.text, ",UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),"...)
		p.text = strconv.AppendUint(p.text, r.bizID, 10)
		p.text = append(p.text, ',')
		p.text = strconv.AppendUint(p.text, r.bizType, 10)
		p.text = append(p.text, ",0,?,?,"...)
		p.time(r.when.due(p.now))
		p.text = append(p.text, ',')
		p.time(r.when.action(p.now))
		p.text = append(p.text, ')')
		p.args = append(p.args, nullable(r.dedup), r.attribute)
	}
	p.text = append(p.text, addManyEndSQL...)
}

// ring writes the ring of one database's rows.
func (p *packet) ring(l Layout, rows []*row) {
	p.text = append(p.text, l.render(ringManySQL, rows[0].table)...)
	for i, r := range rows {
		if i > 0 {
			p.text = append(p.text, ",\n"...)
		}
		p.text = append(p.text, '(')
		p.text = strconv.AppendInt(p.text, int64(r.table), 10)
		p.text = append(p.text, ',')
		p.text = strconv.AppendUint(p.text, uint64(r.id), 10)
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
	p.text = append(t.AppendFormat(p.text, timeForm), '\'')
}

// near picks the rows for which the doorbell rings.
func (p *packet) near(rows []*row, horizon time.Duration) []*row {
	var near []*row
	for _, r := range rows {
		if r.when.until(p.now) < horizon {
			near = append(near, r)
		}
	}
	return near
}

func tableOf(r *row) int { return r.table }

// groups calls do for each run of rows with the same key.
func groups(rows []*row, key func(*row) int, do func([]*row)) {
	for start := 0; start < len(rows); {
		end := start + 1
		for end < len(rows) && key(rows[end]) == key(rows[start]) {
			end++
		}
		do(rows[start:end])
		start = end
	}
}
