package ddl

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Look reads where every database stands. It changes nothing.
func (m *Move) Look(ctx context.Context) ([]Moved, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	all := make([]Moved, len(m.pairs))
	for i, p := range m.pairs {
		all[i] = Moved{Database: p.from.name(), From: p.from.Name, To: p.to.Name, FromState: p.from.state, ToState: p.to.state}
	}
	return all, nil
}

func (m *Move) look(ctx context.Context) error {
	for _, p := range m.pairs {
		if err := m.lookAt(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (m *Move) lookAt(ctx context.Context, p *pair) error {
	if err := p.apart(ctx); err != nil {
		return err
	}
	for _, c := range []*dbCopy{p.from, p.to} {
		if err := m.lookOn(ctx, c); err != nil {
			return err
		}
	}
	if p.from.state == CopyActive && p.to.state == CopyActive {
		return fmt.Errorf("%s is active, and on server %s too: if `tocsin ddl apply` made the one on %s, which then has no tasks, drop it", p.from.where(), p.to.Name, p.to.Name)
	}
	return nil
}

func (m *Move) lookOn(ctx context.Context, c *dbCopy) error {
	return c.look(ctx, newRow(c.layout, c.db, Options{Cluster: m.cluster}))
}

// Retire takes the old copies out of use.
func (m *Move) Retire(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	for _, p := range m.pairs {
		switch {
		case p.from.state == CopyAbsent:
			return fmt.Errorf("there is no %s", p.from.where())
		case p.to.state == CopyActive || p.to.state == CopyHalf:
			return fmt.Errorf("%s is %s: there is nothing to retire on server %s", p.to.where(), p.to.state, p.from.Name)
		}
	}
	m.begin(m.pairs, 1, 0)
	for _, p := range m.pairs {
		if err := p.from.fence(ctx, m.opt.Wait, m.count); err != nil {
			return err
		}
	}
	return nil
}

// Compare names in what the new copies differ from the old, which must be
// retired: schema, layout row, biz types, what was relayed from outboxes, tasks by
// status, and every column of the tasks that may still be delivered.
func (m *Move) Compare(ctx context.Context) ([]Finding, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	if err := m.comparable(); err != nil {
		return nil, err
	}
	m.begin(m.pairs, 0, 1)
	return m.differences(ctx, m.pairs)
}

// comparable refuses what takes writes, or is not there.
func (m *Move) comparable() error {
	for _, p := range m.pairs {
		switch {
		case p.from.state != CopyRetired:
			return fmt.Errorf("%s is %s: run `tocsin ddl move retire` first", p.from.where(), p.from.state)
		case p.to.state == CopyAbsent:
			return fmt.Errorf("there is no %s: copy it from server %s, all tables", p.to.where(), p.from.Name)
		}
	}
	return nil
}

func (m *Move) differences(ctx context.Context, pairs []*pair) ([]Finding, error) {
	want := newExpectations()
	var all []Finding
	for _, p := range pairs {
		found, err := p.differences(ctx, want, m.opt.Parallel, m.count)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// differ refuses copies that differ.
func differ(found []Finding) error {
	if len(found) == 0 {
		return nil
	}
	text := "the copies differ: " + found[0].String()
	if more := len(found) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d differences more, see `tocsin ddl move compare`)", more)
	}
	return errors.New(text)
}

// Activate puts the new copies into use, if they are as the old ones. Those that
// are in use already stay, and those that an interrupted Undo has taken out of use are put back.
func (m *Move) Activate(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	if err := m.comparable(); err != nil {
		return err
	}
	var rest, fresh []*pair
	for _, p := range m.pairs {
		if p.to.state != CopyActive {
			rest = append(rest, p)
		}
		if !p.ahead() {
			fresh = append(fresh, p)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	m.begin(rest, 1, 1)
	found, err := m.differences(ctx, fresh) // the rows of the others may differ by now
	if err == nil {
		err = differ(found)
	}
	if err != nil {
		return err
	}
	for _, p := range rest {
		if err := p.to.unfence(ctx, p.from, m.opt.Wait, m.count); err != nil {
			return err
		}
	}
	return nil
}

// Undo puts the old copies into use again and retires the new ones. If a new copy
// has taken a write meanwhile, Undo fails and that copy stays in use.
func (m *Move) Undo(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	for _, p := range m.pairs {
		if p.from.state == CopyAbsent {
			return fmt.Errorf("there is no %s", p.from.where())
		}
	}
	m.begin(m.pairs, 2, 1)
	for _, p := range m.pairs {
		if err := m.undo(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (m *Move) undo(ctx context.Context, p *pair) error {
	if p.ahead() {
		if err := m.withdraw(ctx, p); err != nil {
			return err
		}
	} else if p.to.state == CopyHalf {
		if err := p.to.fence(ctx, m.opt.Wait, m.count); err != nil {
			return err
		}
	}
	if p.from.state == CopyActive {
		return nil
	}
	return p.from.unfence(ctx, p.to, m.opt.Wait, m.count)
}

// ahead reports whether the new copy was in use after the old one, even if an undo that was interrupted has retired it since.
// It may have taken writes.
func (p *pair) ahead() bool {
	return p.to.state == CopyActive || p.from.state != CopyActive && p.to.mark() > p.from.mark()
}

// withdraw retires a new copy that was put into use. If it has taken a write, or if the comparison fails, it is put into use
// again, even if ctx has ended meanwhile.
func (m *Move) withdraw(ctx context.Context, p *pair) error {
	if err := p.to.fence(ctx, m.opt.Wait, m.count); err != nil {
		return err
	}
	within := time.Duration(len(p.to.used())+4) * m.opt.Wait // a wait for each table, its mark and its layout row
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if err := m.lookOn(looking, p.to); err != nil {
		return err
	}
	stays := " stays in use"
	found, err := m.differences(ctx, []*pair{p})
	if err == nil {
		stays, err = " has taken writes and stays in use", differ(found)
	}
	if err == nil {
		return nil
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if again := p.to.unfence(lasting, p.from, m.opt.Wait, m.count); again != nil {
		return fmt.Errorf("%w; and %s could not be put into use again: %w", err, p.to.where(), again)
	}
	return fmt.Errorf("%s%s: %w", p.to.where(), stays, err)
}

// begin sets how often a step renames all tables of each pair, and how often it compares their task tables.
func (m *Move) begin(pairs []*pair, renames, compares int) {
	each := renames*len(pairs[0].from.used()) + compares*pairs[0].from.layout.Tables
	m.progress = progress{total: each * len(pairs), tell: m.opt.Progress}
}

// count notes tables done.
func (m *Move) count(tables int) { m.progress.add(tables, 0) }
