package store

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
)

var errLater = errors.New("not written yet")

type clock struct{}

func (s *Store) Check(ctx context.Context, server int) error             { return errLater }
func (s *Store) Horizon(ctx context.Context) (time.Duration, error)      { return 0, errLater }
func (s *Store) Measure(ctx context.Context, server int) (Offset, error) { return Offset{}, errLater }
func (s *Store) Now(server int) int64                                    { return 0 }
func (s *Store) Peek(ctx context.Context, q PeekQuery) (Page, error)     { return Page{}, errLater }
func (s *Store) Load(ctx context.Context, server int, ids []tocsin.JobID) (Loaded, error) {
	return Loaded{}, errLater
}
func (s *Store) Claim(ctx context.Context, c Claim) ([]Row, error) { return nil, errLater }
func (s *Store) Settle(ctx context.Context, server int, outcomes []Outcome) ([]Fate, error) {
	return nil, errLater
}
func (s *Store) Recover(ctx context.Context, server int, tables []int, limit int) (Recovered, error) {
	return Recovered{}, errLater
}
func (s *Store) Bells(ctx context.Context, server int, after map[int]uint64, limit int) (map[int][]Bell, error) {
	return nil, errLater
}
func (s *Store) LastBell(ctx context.Context, server int) (map[int]uint64, error) {
	return nil, errLater
}
func (s *Store) Own(ctx context.Context, group, node string, revisions map[int]int64) error {
	return errLater
}
func (s *Store) Owners(ctx context.Context, server int, group string) (map[int]string, error) {
	return nil, errLater
}
func (s *Store) Redrive(ctx context.Context, id tocsin.JobID) (bool, error) { return false, errLater }
func (s *Store) Counts(ctx context.Context, server int, tables []int) ([]Count, error) {
	return nil, errLater
}
func (s *Store) Facts(ctx context.Context, server int) (Facts, error) { return Facts{}, errLater }
func (s *Store) RegisterMetrics(reg prometheus.Registerer) error      { return errLater }
func (f Fate) String() string                                         { return "" }
