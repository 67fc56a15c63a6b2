package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/schedule"
)

// Whatever a payload holds, the file that is written of a schedule means that schedule.
func TestAFileThatIsWrittenIsReadAsTheSameSchedules(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", " ", "\n", "\n\na", "a\n", "a\n\n\n", "  a\n b\n", "\ta", "a\r\nb", "a ", " a", "null", "~", "true", "no", "1", "1.0", "0x1f", "1_000", "2026-01-01", "|", ">-", "- a", "a: b", "# a", "a # b",
		"'", "''", `"`, `\`, `\n`, "{}", "[a", "*a", "&a", "!a", "%a", "@a", "`a`", "?", ": ", "---", "...", "<<", "=", ".inf", "\u202egnp", "\x1b[31m", "\x00", "\ufeffa", "\u2028", "\u0085", "订单 é", "\U0001f514", "\ufffd",
		`{"n":18446744073709551615,"e":1E400}`, "{\n  \"a\": 1,\n  \"b\": [1, 2]\n}\n", strings.Repeat("long ", 400), strings.Repeat("[", 500),
	}
	const letters = "ab \n\t'\"\\:#-{}[]|>&*!%@`,?~\r\u202e订0"
	runes := []rune(letters)
	for range 60 {
		var b strings.Builder
		for range rand.N(8) {
			b.WriteRune(runes[rand.N(len(runes))])
		}
		texts = append(texts, b.String())
	}
	var all []schedule.Definition
	for i, text := range texts {
		d := schedule.Definition{
			Name: fmt.Sprint("s", i), App: "null", BizType: "order.close", Key: "on", Cron: "*/5 * * * mon-fri", Zone: "Europe/Berlin", Payload: text,
			Headers: map[string]string{"x": strings.Map(printable, text), "y": "1"}, Start: time.UnixMilli(1_900_000_000_123).UTC(), Jitter: 1_000_000,
		}
		if i%2 == 0 {
			d.Key, d.BizID, d.Cron, d.Headers = "", 1<<64-1, "@every 90s", nil
		}
		if d = d.WithDefaults(); d.Validate() == nil {
			all = append(all, d)
		}
	}
	if len(all) < len(texts)*9/10 {
		t.Fatalf("only %d of %d are valid", len(all), len(texts))
	}
	for some := range slices.Chunk(all, 100) {
		text, err := schedule.YAML(some)
		if err != nil {
			t.Fatal(err)
		}
		read, err := schedule.Parse(text, "written.yaml")
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for i, d := range read {
			if d = d.WithDefaults(); !reflect.DeepEqual(d, some[i]) {
				t.Errorf("%q is read as %q; %q, %q", some[i].Payload, d.Payload, some[i].Headers, d.Headers)
			}
		}
	}
}

// printable leaves out what no header may hold.
func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}
