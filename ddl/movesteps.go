package ddl

import (
	"context"
	"errors"
	"fmt"
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
		if err := p.apart(ctx); err != nil {
			return err
		}
		for _, c := range []*dbCopy{p.from, p.to} {
			if err := c.look(ctx, newRow(c.layout, c.db, Options{Cluster: m.cluster})); err != nil {
				return err
			}
		}
		if p.from.state == CopyActive && p.to.state == CopyActive {
			return fmt.Errorf("%s is active, and on server %s too: if `tocsin ddl apply` made the one on %s, which then has no tasks, drop it", p.from.where(), p.to.Name, p.to.Name)
		}
	}
	return nil
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
	m.begin(2 + m.pairs[0].from.layout.Tables)
	for _, p := range m.pairs {
		if err := p.from.fence(ctx, m.opt.Wait, m.count); err != nil {
			return err
		}
	}
	return nil
}

// Compare names in what the new copies differ from the old, which must be
// retired: schema, layout row, biz types, tasks by status, and every column of the
// tasks that may still be delivered.
func (m *Move) Compare(ctx context.Context) ([]Finding, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	if err := m.comparable(); err != nil {
		return nil, err
	}
	m.begin(m.pairs[0].from.layout.Tables)
	return m.differences(ctx)
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

func (m *Move) differences(ctx context.Context) ([]Finding, error) {
	want := newExpectations()
	var all []Finding
	for _, p := range m.pairs {
		found, err := p.differences(ctx, want, m.opt.Parallel, m.count)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// equal refuses copies that differ.
func (m *Move) equal(ctx context.Context) error {
	found, err := m.differences(ctx)
	if err != nil || len(found) == 0 {
		return err
	}
	text := "the copies differ: " + found[0].String()
	if more := len(found) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d differences more, see `tocsin ddl move compare`)", more)
	}
	return errors.New(text)
}

// Activate puts the new copies into use, if they are as the old ones. Those that
// are in use already stay.
func (m *Move) Activate(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	if err := m.comparable(); err != nil {
		return err
	}
	var rest []*pair
	for _, p := range m.pairs {
		if p.to.state != CopyActive {
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	m.pairs = rest // of those in use the rows differ by now
	m.begin(2 + 2*rest[0].from.layout.Tables)
	if err := m.equal(ctx); err != nil {
		return err
	}
	for _, p := range rest {
		if err := p.to.unfence(ctx, p.from, m.opt.Wait, m.count); err != nil {
			return err
		}
	}
	return nil
}

// Undo puts the old copies into use again and retires the new ones. It refuses
// where a new copy has taken a write meanwhile: that stays in use then.
func (m *Move) Undo(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	for _, p := range m.pairs {
		if p.from.state == CopyAbsent {
			return fmt.Errorf("there is no %s", p.from.where())
		}
	}
	m.begin(4 + 3*m.pairs[0].from.layout.Tables)
	for _, p := range m.pairs {
		if err := m.undo(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (m *Move) undo(ctx context.Context, p *pair) error {
	if p.to.state == CopyActive || p.to.state == CopyHalf {
		if err := m.withdraw(ctx, p); err != nil {
			return err
		}
	}
	if p.from.state == CopyActive {
		return nil
	}
	return p.from.unfence(ctx, p.to, m.opt.Wait, m.count)
}

// withdraw retires a new copy that was put into use, unless it has taken a write.
func (m *Move) withdraw(ctx context.Context, p *pair) error {
	was := p.to.state
	if err := p.to.fence(ctx, m.opt.Wait, m.count); err != nil {
		return err
	}
	one := &Move{opt: m.opt, cluster: m.cluster, pairs: []*pair{p}}
	if err := one.look(ctx); err != nil {
		return err
	}
	err := one.equal(ctx)
	if err == nil || was != CopyActive {
		return err
	}
	if again := p.to.unfence(ctx, p.from, m.opt.Wait, m.count); again != nil {
		return fmt.Errorf("%w; and %s could not be put into use again: %w", err, p.to.where(), again)
	}
	return fmt.Errorf("%s has taken writes and stays in use: %w", p.to.where(), err)
}

// begin sets how many tables a step takes of each database.
func (m *Move) begin(tables int) {
	m.progress = progress{total: tables * len(m.pairs), tell: m.opt.Progress}
}

// count notes tables done.
func (m *Move) count(tables int) { m.progress.add(tables, 0) }
