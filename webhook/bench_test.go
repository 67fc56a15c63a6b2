package webhook

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func BenchmarkDeliver(b *testing.B) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	s, err := NewSink(SinkConfig{URL: receiver.URL, Allow: loopback, Secrets: []string{secretA}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	one := []tocsin.Info{nth(1)}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Deliver(b.Context(), one)[0]; err != nil {
			b.Fatal(err)
		}
	}
}
