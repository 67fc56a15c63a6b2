package firetimes

import (
	"archive/zip"
	"fmt"
	"go/build"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// names returns every zone that Go knows.
func names(t *testing.T) (names []string) {
	t.Helper()
	r, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestSpansOfEveryZoneMeet walks the spans of 700 years: each begins where the one before ended, and has the offset that
// the time package shows. Within a century about now, changes of clocks are days apart.
func TestSpansOfEveryZoneMeet(t *testing.T) {
	t.Parallel()
	all := names(t)
	if len(all) < 500 {
		t.Fatalf("only %d zones", len(all))
	}
	until := time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, name := range all {
		z, err := zoneOf(name)
		if err != nil {
			t.Error(err)
			continue
		}
		at, last := time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), int64(0)
		for n := 0; at < until; n++ {
			s := z.spanAt(at)
			if s.start > at || s.end <= at || n > 3000 {
				t.Errorf("%s: %v is in the span %+v", name, time.Unix(at, 0).UTC(), s)
				break
			}
			for _, instant := range []int64{s.start, at, at + (min(s.end, until)-at)/2, s.end - 1} {
				if _, offset := time.Unix(max(instant, -1<<40), 0).In(z.loc).Zone(); s.end < until && int64(offset) != s.offset {
					t.Errorf("%s: offset %d at %v, the span has %d", name, offset, time.Unix(instant, 0).UTC(), s.offset)
				}
			}
			if s.end >= changesFrom && s.end < changesTo && z.spanAt(s.end).offset != s.offset { // shortest looks at one change at a time
				if s.end-last < 2*secondsDay {
					t.Errorf("%s changes at %v and %v", name, time.Unix(last, 0).UTC(), time.Unix(s.end, 0).UTC())
				}
				last = s.end
			}
			at = s.end
		}
	}
}

// TestZonesAreHeldOnceAndUpToABound asks for every zone and for many that do not exist. The zones of the package are those
// of all its tests, so it is not parallel.
func TestZonesAreHeldOnceAndUpToABound(t *testing.T) {
	for i := range 3 * maxZones {
		if _, err := zoneOf(strings.Repeat("./", i) + "Europe/Berlin"); err == nil != (i == 0) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	for _, name := range names(t) {
		if _, err := zoneOf(name); err != nil {
			t.Error(err)
		}
	}
	zones.Lock()
	defer zones.Unlock()
	if n := len(zones.loaded); n > len(names(t))+1 { // "" is UTC too
		t.Errorf("%d zones are held", n)
	}
	clear(zones.loaded)
	for i := range maxZones {
		zones.loaded[fmt.Sprint("x", i)] = zone{} // as if a machine had so many
	}
	zones.Unlock()
	_, err := zoneOf("Europe/Paris")
	zones.Lock()
	if n := len(zones.loaded); n > maxZones || err != nil {
		t.Errorf("%d zones are held, %v", n, err)
	}
	clear(zones.loaded)
}
