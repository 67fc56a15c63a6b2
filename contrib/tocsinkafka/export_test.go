package tocsinkafka

import (
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// Row reads a record as a relay does.
var Row = (*topic).row

// Within returns the entrance with other times.
func (e Entrance) Within(patience, session time.Duration) Entrance {
	e.patience, e.session = patience, session
	return e
}

// Holding returns the entrance with another bound of commands that are not done.
func (e Entrance) Holding(most int) Entrance {
	e.most = most
	return e
}

// Topic opens the topic of an entrance.
func Topic(cfg outbox.Config) (*topic, error) {
	s, err := cfg.Driver.Open(cfg)
	if err != nil {
		return nil, err
	}
	return s.(*topic), nil
}
