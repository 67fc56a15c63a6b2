package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kinds are the texts that are named by words of the API.
var kinds = []string{"status.", "state.", "outcome.", "action.", "code.", "done.", "missed.", "overlap.", "for.", "alarm.", "sort.", "cluster.show.", "fault.", "lane.", "means.", "mode.", "priority.", "operation.", "via.", "field.", "hint.", "month.", "weekday."}

// Every text has both languages with the same places for values, and every page asks for texts that are there.
func TestEveryTextIsThereInEveryLanguage(t *testing.T) {
	t.Parallel()
	verb := regexp.MustCompile(`%[a-z]`)
	for key, pair := range texts {
		if pair[0] == "" || pair[1] == "" {
			t.Errorf("%s: %q", key, pair)
		}
		if en, zh := verb.FindAllString(pair[0], -1), verb.FindAllString(pair[1], -1); !slices.Equal(en, zh) {
			t.Errorf("%s: %v and %v", key, en, zh)
		}
	}
	asked := map[string]bool{}
	note := func(text, pattern string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			asked[m[1]] = true
			if _, ok := texts[m[1]]; !ok {
				t.Errorf("there is no text %s", m[1])
			}
		}
	}
	pages, err := fs.Glob(files, "pages/*.html")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := files.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		note(string(text), `\.T "([^"]+)"`)
	}
	sources, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(source, "_test.go") {
			note(string(text), `\.T\("([^"]+)"`)
			note(string(text), `refusal\([^"]*"[^"]*", "([^"]+)"\)`)
		}
	}
	for _, key := range []string{"ago", "ahead"} { // chosen in When
		asked[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if !asked[key] && !slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(key, kind) }) {
			t.Errorf("no page asks for %s", key)
		}
	}
}

// `make htmx` compares the file with that of npm's registry, too.
func TestHtmxIsThatOfVersion4_0_1(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256(assets["htmx.min.js"].text)
	if got := hex.EncodeToString(sum[:]); got != "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130" {
		t.Errorf("htmx.min.js has the SHA-256 %s", got)
	}
	license, err := files.ReadFile("static/htmx.LICENSE")
	if err != nil || !strings.Contains(string(license), "Zero-Clause BSD") {
		t.Errorf("%v: %.80s", err, license)
	}
}
