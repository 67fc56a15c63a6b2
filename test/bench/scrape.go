package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// scrapeEvery is how often the nodes' metrics are read, as Prometheus would.
const scrapeEvery = 5 * time.Second

// Scraped says what the metrics of the nodes were.
type Scraped struct {
	Series int     `json:"series"` // of the node that has most, as text: a bucket is a series too
	Bytes  int     `json:"bytes"`  // of its page
	Times  int     `json:"times"`  // pages read, of all nodes, one each 5 s
	Median float64 `json:"median_ms"`
	Max    float64 `json:"max_ms"`
}

// scraper reads the metrics of nodes again and again.
type scraper struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	sources []prometheus.Gatherer // guarded by mu
	took    []time.Duration       // guarded by mu
	most    Scraped               // guarded by mu; Series and Bytes
}

func startScraper(ctx context.Context) *scraper {
	s := &scraper{}
	ctx, s.end = context.WithCancel(ctx)
	s.done.Go(func() {
		tick := time.NewTicker(scrapeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.scrape()
			}
		}
	})
	return s
}

// add has the metrics of another node read.
func (s *scraper) add(source prometheus.Gatherer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, source)
}

// scrape reads one page of each node.
func (s *scraper) scrape() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, source := range s.sources {
		begin := time.Now()
		text := page(source)
		s.took = append(s.took, time.Since(begin))
		s.most.Series, s.most.Bytes = max(s.most.Series, seriesIn(text)), max(s.most.Bytes, len(text))
	}
}

// stop ends the scraper and returns what it saw. If it has read nothing yet, it reads once.
func (s *scraper) stop() Scraped {
	s.end()
	s.done.Wait()
	if len(s.took) == 0 {
		s.scrape()
	}
	slices.Sort(s.took)
	s.most.Times, s.most.Median, s.most.Max = len(s.took), millis(s.took, 0.5), millis(s.took, 1)
	return s.most
}

// page writes the metrics as a node's /metrics does.
func page(source prometheus.Gatherer) []byte {
	var text bytes.Buffer
	families, _ := source.Gather() // what can be gathered
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		_ = encoder.Encode(family) // a buffer takes everything
	}
	return text.Bytes()
}

// seriesIn counts the series of a page.
func seriesIn(text []byte) (n int) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if line := lines.Bytes(); len(line) > 0 && line[0] != '#' {
			n++
		}
	}
	return n
}

// String is what was seen, for people.
func (s *Scraped) String() string {
	if s == nil {
		return "neither exported nor read"
	}
	return fmt.Sprintf("%d series and %d bytes of a node; read %d times, each in %.1f ms (median; at most %.1f ms)", s.Series, s.Bytes, s.Times, s.Median, s.Max)
}
