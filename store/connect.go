package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
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
	var looks sync.WaitGroup
	for i, sv := range s.servers {
		if sv.refusals.Load() != nil {
			looks.Go(func() { _, _ = s.Measure(ctx, i) }) // a failure will show in its statements
		}
	}
	looks.Wait()
}

// meet looks at all servers. It returns nil if a database can be used.
func (s *Store) meet(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(s.servers))
	var usable sync.Once
	var found bool
	var looks sync.WaitGroup
	for i, sv := range s.servers {
		looks.Go(func() {
			if _, errs[i] = s.Measure(ctx, i); errs[i] == nil {
				s.recall(ctx, sv)
			}
			if errs[i] == nil && len(sv.refused().without(sv.Databases)) > 0 {
				usable.Do(func() {
					found = true
					time.AfterFunc(stragglers, cancel)
				})
			}
		})
	}
	looks.Wait()
	s.judgeAgain(ctx)
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
