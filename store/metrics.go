package store

type metrics struct{}

func newMetrics() *metrics { return &metrics{} }
