package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin/store"
)

// script answers as told, look by look, and then ends the run.
type script struct {
	looks   []look
	foreign error
	end     context.CancelFunc
}

type look struct {
	offset store.Offset
	err    error
}

func (s *script) Measure(ctx context.Context, _ int) (store.Offset, error) {
	if len(s.looks) == 0 {
		s.end()
		return store.Offset{}, ctx.Err()
	}
	next := s.looks[0]
	s.looks = s.looks[1:]
	return next.offset, next.err
}

func (s *script) Check(context.Context, int) error { return s.foreign }
func (s *script) Servers() []string                { return []string{"db1"} }

func TestClocksSayWhatChanges(t *testing.T) {
	good, gone := look{}, look{err: fmt.Errorf("no answer: %w", io.EOF)}
	ahead, behind := look{offset: store.Offset{Ahead: 2 * time.Minute}}, look{offset: store.Offset{Ahead: -2 * time.Minute}}
	slow := look{offset: store.Offset{Ahead: 1500 * time.Millisecond, RoundTrip: time.Second}}
	foreign := errors.New("another cluster")
	for name, c := range map[string]struct {
		looks   []look
		foreign error
		says    []string
		err     error
	}{
		"a good clock is nothing to speak of":       {looks: []look{good, good, good}},
		"a server that goes and comes back":         {looks: []look{good, gone, gone, good}, says: []string{"does not answer", "answers again"}},
		"one that was away from the start":          {looks: []look{gone, good}, says: []string{"does not answer", "answers again"}},
		"a clock two minutes ahead, once":           {looks: []look{ahead, ahead, good}, says: []string{"far from", "near this"}},
		"a clock two minutes behind":                {looks: []look{behind}, says: []string{"far from"}},
		"a round trip may explain the difference":   {looks: []look{slow, good}},
		"one that comes back as another is refused": {looks: []look{gone, good, good}, foreign: foreign, says: []string{"does not answer", "answers again"}, err: foreign},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				ctx, end := context.WithCancel(t.Context())
				defer end()
				s := &script{looks: c.looks, foreign: c.foreign, end: end}
				if err := newClocks(s, zerolog.New(&log), nil).run(ctx); !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if log.Len() == 0 {
					lines = nil
				}
				if len(lines) != len(c.says) {
					t.Fatalf("logged %q, want %q", lines, c.says)
				}
				for i, part := range c.says {
					if !strings.Contains(lines[i], part) {
						t.Errorf("line %d is %s, want %q", i, lines[i], part)
					}
				}
			})
		})
	}
}
