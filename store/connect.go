package store

import (
	"context"
	"errors"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Connect is Open and a Check of every server: it refuses a cluster that is not
// the config's. Of unreachable servers one that answers makes up: their tables
// fail when they are asked for.
func Connect(ctx context.Context, cfg tocsin.Config) (*Store, error) {
	s, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	s.meet(ctx)
	var unreachable []error
	for server := range s.servers {
		err := s.Check(ctx, server)
		switch {
		case err == nil:
		case mysql.ClassOf(err).Transient():
			unreachable = append(unreachable, err)
		default:
			return nil, errors.Join(err, s.Close())
		}
	}
	if len(unreachable) == len(s.servers) {
		return nil, errors.Join(errors.Join(unreachable...), s.Close())
	}
	return s, nil
}

// meet reads the layout rows of all servers at once: the identity that most
// databases have must be known before one is refused for another.
func (s *Store) meet(ctx context.Context) {
	var readers sync.WaitGroup
	for _, sv := range s.servers {
		readers.Go(func() { _, _ = s.layouts(ctx, sv) }) // Check reports the errors
	}
	readers.Wait()
}
