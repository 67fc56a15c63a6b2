package store

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// Retired reads which databases of a server say that they have moved to another
// one. Those that can't be read are named in the error, beside the others.
func (s *Store) Retired(ctx context.Context, server int) ([]int, error) {
	rows, err := s.layouts(ctx, s.servers[server])
	var databases []int
	for _, row := range rows {
		if row.State == layoutrow.Retired {
			databases = append(databases, row.Asked)
		}
	}
	return databases, err
}
