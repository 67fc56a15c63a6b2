package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// stragglers is how long Connect waits for the other servers once a database can be
// used.
const stragglers = time.Second

// Connect is Open followed by a look at all servers at once. One usable database is
// enough. Statements to the others are refused until a Survey or Measure finds them
// usable; a server that does not answer is not refused. If no database can be used,
// the error is the first refusal, or else says why each server can't be asked.
func Connect(ctx context.Context, cfg tocsin.Config, options ...Option) (*Store, error) {
	s, err := Open(cfg, options...)
	if err != nil {
		return nil, err
	}
	if err := s.meet(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// judgeAgain judges the servers that answered once more, now that the identity of
// most databases and more of their marks are known: a server may have been read before
// the others.
func (s *Store) judgeAgain(ctx context.Context) {
	if s.Identity() == "" {
		return
	}
	EachServer(len(s.servers), func(server int) {
		if s.servers[server].refusals.Load() != nil {
			_, _ = s.Measure(ctx, server) // a failure will show in its statements
		}
	})
}

// meet looks at all servers. It returns nil if a database can be used.
func (s *Store) meet(ctx context.Context) error {
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(s.servers))
	var usable sync.Once
	var found bool
	EachServer(len(s.servers), func(server int) {
		sv := s.servers[server]
		if _, errs[server] = s.Measure(first, server); errs[server] != nil {
			return
		}
		if s.recall(first, sv); len(sv.refused().without(sv.Databases)) > 0 {
			usable.Do(func() {
				found = true
				time.AfterFunc(stragglers, cancel)
			})
		}
	})
	again, end := context.WithTimeout(ctx, answerWithin)
	defer end()
	s.judgeAgain(again)
	if found {
		return nil
	}
	for _, sv := range s.servers {
		if err := sv.refused().whole(sv); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// Check compares the layout rows of a server's databases with the config. It refuses
// the first difference, naming both sides and the number of further differences.
// Statements are refused by the next Survey or Measure only, but identities and marks
// are remembered.
func (s *Store) Check(ctx context.Context, server int) error {
	sv := s.servers[server]
	_, refused, err := s.refusalsOver(ctx, sv, sv.DB)
	if err != nil {
		return err
	}
	err = refused.whole(sv)
	if more := len(refused) - 1; more > 0 && len(refused) < len(sv.Databases) {
		err = fmt.Errorf("%w (and %d more of the %d databases on %s can't be used)", err, more, len(sv.Databases), sv.Name)
	}
	return err
}

// want returns what every layout row must say according to the config.
func (s *Store) want() layoutrow.Want {
	return layoutrow.Want{Databases: s.layout.Databases, Tables: s.layout.Tables, Cluster: s.cluster, Ownership: s.ownership, GraceMS: s.grace.Milliseconds()}
}

// Identity returns the identity on which the databases read so far agree; "" if none
// has one.
func (s *Store) Identity() string { return s.identities.Agreed() }

// layouts reads the layout rows of databases, by number. failed has the reasons why others could not be read. The error concerns
// the whole server.
func (s *Store) layouts(ctx context.Context, q layoutrow.Queryer, databases []int) (rows map[int]layoutrow.Row, failed map[int]error, err error) {
	start := time.Now()
	rows, failed, err = layoutrow.Read(ctx, q, databases, s.layout.Database, true)
	s.metrics.observe("layout", start, len(rows), err)
	for _, err := range failed {
		s.metrics.fault("layout", err)
	}
	return rows, failed, err
}

// Horizon returns how near a task must be to ring the doorbell, by the layout row that was read last; 0 if none was read.
func (s *Store) Horizon() time.Duration { return time.Duration(s.horizon.Load()) * time.Millisecond }
