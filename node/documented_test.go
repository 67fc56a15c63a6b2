package node_test

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// nameBook is a Registerer that notes the names of all metrics, those without a
// value too, which a registry does not tell.
type nameBook struct {
	*prometheus.Registry

	mu    sync.Mutex
	names map[string]bool
}

var fullName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (b *nameBook) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := range descs {
		b.names[fullName.FindStringSubmatch(d.String())[1]] = true
	}
	return b.Registry.Register(c)
}

func TestEveryMetricOfTheOperatorsPageIsExported(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	cfg := p.config("orders")
	book := &nameBook{Registry: prometheus.NewRegistry(), names: map[string]bool{}}
	cfg.Registerer = book
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error { return nil })
	n, _ := run(t, cfg, &h)
	for owned(n) != 8 { // every engine is there
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := n.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	open := newOpenPlace(t).config("orders")
	without := &nameBook{Registry: prometheus.NewRegistry(), names: map[string]bool{}}
	open.Registerer = without
	m, stop := run(t, open, &h)
	shares(t, 16, m)
	stop()
	maps.Copy(book.names, without.names)
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("`(tocsin_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(documented) == 0 {
		t.Fatal("the page names no metric")
	}
	book.mu.Lock()
	defer book.mu.Unlock()
	for _, m := range documented {
		if !book.names[m[1]] {
			t.Errorf("no metric is called %s", m[1])
		}
	}
	if t.Failed() {
		t.Logf("those that there are: %q", slices.Sorted(maps.Keys(book.names)))
	}
}
