package yamlfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// wait is a value with a reader of its own.
type wait time.Duration

func (w *wait) UnmarshalYAML(node ast.Node) error {
	text, _ := Text(node)
	d, err := time.ParseDuration(text)
	if err != nil {
		return ErrorAt(node, "%q is not a duration", text)
	}
	*w = wait(d)
	return nil
}

// text is a value that is written as a text.
type text string

func (w *text) UnmarshalText(b []byte) error {
	*w = text(b)
	return nil
}

type sample struct {
	Items []struct {
		Name   string            `yaml:"name"`
		Count  int               `yaml:"count"`
		Big    uint64            `yaml:"big"`
		On     bool              `yaml:"on"`
		Rate   float64           `yaml:"rate"`
		Wait   wait              `yaml:"wait"`
		When   time.Time         `yaml:"when"`
		Text   text              `yaml:"text"`
		Waits  []wait            `yaml:"waits"`
		Texts  []string          `yaml:"texts"`
		Labels map[string]string `yaml:"labels"`
		Deep   *struct {
			Key string `yaml:"key"`
		} `yaml:"deep"`
	} `yaml:"items"`
	Limits map[string]struct {
		Burst int `yaml:"burst"`
	} `yaml:"limits"`
}

// mistakes are files with one mistake each, and what is said of them.
var mistakes = map[string]struct{ text, want string }{
	"unknown key":                   {"items:\n  - name: a\n    nmae: b\n", `f.yaml:3: unknown key "nmae": use name, count, big, on, rate, wait, when, text, waits, texts, labels, deep`},
	"unknown key deep down":         {"items:\n  - name: a\n    deep:\n      kye: b\n", `f.yaml:4: unknown key "kye": use key`},
	"unknown key on top":            {"item: []\n", `f.yaml:1: unknown key "item": use items, limits`},
	"unknown key by name":           {"limits:\n  a:\n    brust: 1\n", `f.yaml:3: unknown key "brust": use burst`},
	"fraction by name":              {"limits: {a: {burst: 4.5}}\n", `f.yaml:1: "4.5" is not a whole number`},
	"repeated key":                  {"items:\n  - name: a\n    name: b\n", `f.yaml:3: mapping key "name" already defined in line 2`},
	"text for a number":             {"items:\n  - count: many\n", `f.yaml:2: "many" is not a whole number`},
	"fraction for a number":         {"items:\n  - name: a\n    count: 4.5\n", `f.yaml:3: "4.5" is not a whole number`},
	"quoted fraction":               {"items:\n  - count: '4.5'\n", `f.yaml:2: "4.5" is not a whole number`},
	"power for a number":            {"items:\n  - big: 1e1\n", `f.yaml:2: "1e1" is not a whole number`},
	"octal number":                  {"items:\n  - big: 010\n", `f.yaml:2: "010" is not a whole number`},
	"mapping for a text":            {"items:\n  - deep: {key: {h:1}}\n", `f.yaml:2: a mapping is not a text: put it in single quotes, such as '{"order":42}'`},
	"colon in brackets":             {"items:\n  - {name: [h:1]}\n", `f.yaml:2: a list is not a text: put it in single quotes, such as '{"order":42}'`},
	"text for a rate":               {"items:\n  - rate: fast\n", `f.yaml:2: "fast" is not a number`},
	"text for a switch":             {"items:\n  - on: maybe\n", `f.yaml:2: "maybe" is not true or false`},
	"negative number":               {"items:\n  - name: a\n    big: -1\n", `f.yaml:3: -1 is out of range`},
	"number for a list":             {"items: 3\n", `f.yaml:1: a list belongs here, not a number`},
	"list for a mapping":            {"items:\n  - deep: [a]\n", `f.yaml:2: a mapping (NAME: VALUE) belongs here, not a list`},
	"own reader":                    {"items:\n  - name: a\n    wait: 3x\n", `f.yaml:3: "3x" is not a duration`},
	"own reader in a list":          {"items:\n  - waits:\n      - 1s\n      - 3x\n", `f.yaml:4: "3x" is not a duration`},
	"text for a time":               {"items:\n  - when: soon\n", `f.yaml:2: "soon" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
	"no such day":                   {"items:\n  - when: 2030-02-30T15:04:05Z\n", `f.yaml:2: "2030-02-30T15:04:05Z" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
	"time without a zone":           {"items:\n  - when: 2030-01-02 15:04:05\n", `f.yaml:2: "2030-01-02 15:04:05" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
	"a zone of a day":               {"items:\n  - when: 2030-01-02T15:04:05+24:00\n", `f.yaml:2: "2030-01-02T15:04:05+24:00" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
	"number for a time":             {"items:\n  - when: 12\n", `f.yaml:2: "12" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
	"star without quotes":           {"items:\n  - name: */5 * * * *\n", `f.yaml:2: value is not allowed in this context. map key-value is pre-defined` + indicators},
	"stars without quotes":          {"items:\n  - name: * * * * *\n", `f.yaml:2: undefined alias name` + indicators},
	"at without quotes":             {"items:\n  - name: @daily\n", `f.yaml:2: '@' is a reserved character` + indicators},
	"colon in a value":              {"items:\n  - name: t:pw: 1\n", `f.yaml:2: mapping value is not allowed in this context: a value with ": " in it needs quotes`},
	"IPv6 in brackets":              {"items:\n  - deep: {key: [[::1]:2379]}\n", `f.yaml:2: found an invalid key for this map: within braces and brackets, a value with any of [ ] { } or a comma in it needs quotes, such as "[::1]:2379"`},
	"braces in braces":              {"items:\n  - {name: http://x/a?b={c}}\n", `f.yaml:2: ',' or '}' must be specified: within braces and brackets, a value with any of [ ] { } or a comma in it needs quotes, such as "[::1]:2379"`},
	"broken brackets":               {"items:\n  - name: [\n", `f.yaml:2: sequence end token ']' not found`},
	"tab":                           {"items:\n\t- name: a\n", `f.yaml:2: a tab stands here: indent YAML with spaces`},
	"tag on nothing":                {"items:\n  - waits: !x \n", `f.yaml:2: the tag !x: leave it out, and put a text that looks like a number into quotes`},
	"empty":                         {"", `f.yaml:1: the file is empty`},
	"comments only":                 {"# nothing\n", `f.yaml:1: the file is empty`},
	"byte order mark":               {"\ufeffitem: []\n", `f.yaml:1: unknown key "item": use items, limits`},
	"document behind an empty one":  {"items: []\n---\n---\n\nitems: []\n", `f.yaml:5: a second document: one file holds one`},
	"document behind an end":        {"items: []\n...\nitems: []\n", `f.yaml:3: a second document: one file holds one`},
	"documents in one line each":    {"--- {items: []}\n--- {items: []}\n", `f.yaml:2: a second document: one file holds one`},
	"marker only":                   {"---\n# c\n---\n", `f.yaml:1: the file is empty`},
	"tab in a text":                 {"items:\n  - name: col1\tcol2\n", `f.yaml:2: a tab stands in a text without quotes: put the text into quotes`},
	"tab in a number":               {"items:\n  - count: 1\t2\n", `f.yaml:2: a tab stands in a text without quotes: put the text into quotes`},
	"tab in a switch":               {"items:\n  - on: tr\tue\n", `f.yaml:2: a tab stands in a text without quotes: put the text into quotes`},
	"tab within brackets":           {"items: [name: a,\n  name: a\tb]\n", `f.yaml:2: a tab stands in a text without quotes: put the text into quotes`},
	"tab within braces":             {"items:\n  - {name: a\tb}\n", `f.yaml:2: a tab stands in a text without quotes: put the text into quotes`},
	"tab in a key":                  {"items:\n  - na\tme: b\n", `f.yaml:2: a tab stands in a text without quotes: put the text into quotes`},
	"Latin-1":                       {"items:\n  - name: M\xfcller\n", `f.yaml:2: this line is not UTF-8: save the file as UTF-8`},
	"UTF-16":                        {"\xff\xfei\x00", `f.yaml:1: this line is not UTF-8: save the file as UTF-8`},
	"control character":             {"items:\n  - name: a\x00b\n", `f.yaml:2: the character U+0000 stands here: write it as an escape in double quotes`},
	"escape beyond Unicode":         {"items:\n  - name: \"\\U00110000\"\n", `f.yaml:2: an escape in this text is no character of Unicode`},
	"fraction in a merge":           {"items:\n  - <<: {count: 4.5}\n", `f.yaml:2: "4.5" is not a whole number`},
	"octal in a list of merges":     {"items:\n  - <<: [{name: a}, {count: 010}]\n", `f.yaml:2: "010" is not a whole number`},
	"octal behind an alias":         {"items:\n  - name: &n 010\n  - count: *n\n", `f.yaml:2: "010" is not a whole number`},
	"unknown key in a merge":        {"items:\n  - <<: {nmae: b}\n", `f.yaml:2: unknown key "nmae": use name, count, big, on, rate, wait, when, text, waits, texts, labels, deep`},
	"merge of a number":             {"items:\n  - <<: 3\n", `f.yaml:2: << takes a mapping, or a list of mappings`},
	"alias of nothing":              {"items:\n  - name: *daily\n", `f.yaml:2: no anchor &daily stands before this alias` + indicators},
	"tag of a text":                 {"items:\n  - name: !!str 010\n", `f.yaml:2: the tag !!str: leave it out, and put a text that looks like a number into quotes`},
	"tag of a switch":               {"items:\n  - on: !!bool yes\n", `f.yaml:2: the tag !!bool: leave it out, and put a text that looks like a number into quotes`},
	"tag of a number":               {"items:\n  - count: !!int 3\n", `f.yaml:2: the tag !!int: leave it out, and put a text that looks like a number into quotes`},
	"nothing in a list":             {"items:\n  - texts: [~, a]\n", `f.yaml:2: nothing stands here: write "" if an empty text is meant`},
	"nothing in a block list":       {"items:\n  -\n  - name: a\n", `f.yaml:2: nothing stands here: write "" if an empty text is meant`},
	"nothing by name":               {"items:\n  - labels: {a: }\n", `f.yaml:2: nothing stands here: write "" if an empty text is meant`},
	"colons in a key within braces": {"items:\n  - labels: {127.0.0.1:2379: a}\n", `f.yaml:2: a text with ": " in it needs quotes`},
	"nothing as a key":              {"limits: {~: {burst: 1}}\n", `f.yaml:1: nothing stands here: write "" if an empty text is meant`},
	"list for a text":               {"items:\n  - name:\n    - a\n", `f.yaml:3: a list is not a text: put it in single quotes, such as '{"order":42}'`},
	"block list for a number":       {"items:\n  - count:\n    - 1\n", `f.yaml:3: a list is not a whole number`},
	"JSON in double quotes":         {"items:\n  - name: \"{\"order\":42}\"\n", `f.yaml:2: value is not allowed in this context. map key-value is pre-defined: quotes stand within quotes: write \" within double ones and '' within single ones, or use the other kind around the text`},
	"apostrophe in a list":          {"items:\n  - texts: ['it's']\n", `f.yaml:2: ',' or ']' must be specified: quotes stand within quotes: write \" within double ones and '' within single ones, or use the other kind around the text`},
	"apostrophe in quotes":          {"items:\n  - name: 'it's'\n", `f.yaml:2: value is not allowed in this context. map key-value is pre-defined: quotes stand within quotes: write \" within double ones and '' within single ones, or use the other kind around the text`},
	"two documents":                 {"items: []\n---\nitems: []\n", `f.yaml:3: a second document: one file holds one`},
}

func TestMistakesAreOneLineWithTheirPlace(t *testing.T) {
	t.Parallel()
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := Parse([]byte(c.text), "f.yaml")
			if err == nil {
				err = f.Decode(new(sample))
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestTimesAreRead(t *testing.T) {
	t.Parallel()
	want := time.Date(2030, 1, 2, 13, 4, 5, 500_000_000, time.UTC)
	for _, text := range []string{"2030-01-02T15:04:05.5+02:00", `"2030-01-02T13:04:05.5Z"`, "null", ""} {
		f, err := Parse([]byte("items:\n  - when: "+text+"\n"), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var s sample
		if err := f.Decode(&s); err != nil || !s.Items[0].When.Equal(want) && len(text) > 4 {
			t.Errorf("%s: %v, %v", text, s.Items[0].When, err)
		}
	}
}

func TestErrorfFindsTheLineOfAPathOrOfItsParent(t *testing.T) {
	t.Parallel()
	f, err := Parse([]byte("# head\nitems:\n  - name: a\n    count: 1\n  - name: b\n    deep:\n      key: x\n"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"$.items[0].count":    "f.yaml:4: bad",
		"$.items[1].deep.key": "f.yaml:7: bad",
		"$.items[1].deep.not": "f.yaml:7: bad",
		"$.items[1].rate":     "f.yaml:5: bad",
		"$.items[7].rate":     "f.yaml:3: bad",
		"$.other":             "f.yaml:2: bad",
	} {
		if got := f.Errorf(path, "bad").Error(); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// bomb is a mapping that merges ten times the one before, and so on.
func bomb(levels int, entry string) string {
	text := "a0: &a0 {k: 1}\n"
	for i := range levels {
		all := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ",")
		text += fmt.Sprintf("a%d: &a%d {"+entry+"}\n", i+1, i+1, all)
	}
	return text
}

// TestAliasesHaveABound: a few hundred bytes must not keep a program busy for long.
func TestAliasesHaveABound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a merge bomb":        {bomb(20, "<<: [%[3]s]"), "f.yaml:6: with its aliases this is more than 100000 values: write out what is needed"},
		"a bomb of lists":     {bomb(20, "l: [%[3]s]"), "f.yaml:6: with its aliases this is more than 100000 values: write out what is needed"},
		"an alias in itself":  {"items: &a [*a]\n", "f.yaml:1: this alias stands in what it is an alias of"},
		"a merge with itself": {"items:\n- &a {name: x, deep: {<<: *a}}\n", "f.yaml:2: this alias stands in what it is an alias of"},
		"in a value":          {"items:\n- name: &x {<<: [&x {k: 1}, *x]}\n", ""},
	} {
		if _, err := Parse([]byte(c.text), "f.yaml"); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	f, err := Parse([]byte("items:\n- &a {name: x, count: 2}\n- {<<: *a, on: true}\n- *a\n"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var s sample
	if err := f.Decode(&s); err != nil || len(s.Items) != 3 || !s.Items[1].On || s.Items[1].Count != 2 || s.Items[2].Name != "x" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestMergesAreWrittenOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, name string
		count      int
	}{
		"own key first":                     {"items:\n- &d {name: a, count: 3}\n- {<<: *d, name: c}\n", "c", 3},
		"own key above":                     {"items:\n- &d {name: a, count: 3}\n- name: c\n  <<: *d\n", "c", 3},
		"the first of a list":               {"items:\n- &d {name: a, count: 3}\n- {<<: [*d, {name: z, count: 4}]}\n", "a", 3},
		"a text that looks like a number":   {"items:\n- {}\n- <<: {name: 0123}\n", "0123", 0},
		"a number also as a text":           {"items:\n- {count: &n 12}\n- {name: *n, count: *n}\n", "12", 12},
		"a merge of a merge, within braces": {"items: [&a {count: 3}, {<<: {<<: *a, name: 010}}]\n", "010", 3},
		"a key that is an alias":            {"items:\n- {name: &k count}\n- {*k : 7}\n", "", 7},
	} {
		var s sample
		f, err := Parse([]byte(c.text), "f.yaml")
		if err == nil {
			err = f.Decode(&s)
		}
		if err != nil || len(s.Items) != 2 || s.Items[1].Name != c.name || s.Items[1].Count != c.count {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// Each sign that YAML 1.2 (5.3) keeps for itself begins a value that is read as it stands, or refused with the advice to quote it.
func TestValuesThatBeginWithASignOfYAML(t *testing.T) {
	t.Parallel()
	for _, sign := range "-?:,[]{}&*!|>'\"%@`" { // but #, which begins a comment
		for _, rest := range []string{"x", "{x}}", " x"} {
			for _, form := range []string{"items:\n- name: %s\n", "items:\n- texts:\n  - %s\n"} {
				value := string(sign) + rest
				var s sample
				f, err := Parse(fmt.Appendf(nil, form, value), "f.yaml")
				if err == nil {
					err = f.Decode(&s)
				}
				switch {
				case err == nil && s.Items[0].Name != value && (len(s.Items[0].Texts) != 1 || s.Items[0].Texts[0] != value):
					t.Errorf("%q in %q is read as %+v", value, form, s.Items[0])
				case err != nil && !hasAny(err.Error(), "quote", "end token ']'") && !strings.HasPrefix(value, "? "): // "? x" is a key
					t.Errorf("%q in %q: %v", value, form, err)
				}
			}
		}
	}
}

// JSON is YAML: a text in JSON's quotes is read as package json reads it.
func TestTextsOfJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "a\tb", "a\r\nb", "\x00\x1f\x7f\u0080", "\u0085\u2028\u2029\ufeff", "\ufffd", "M\u00fcller", "\U0001F600", `a\b/"'`, "- # : {}[],&*!|>%@`", "---\n..."} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var s sample
		f, err := Parse(fmt.Appendf(nil, `{"items":[{"name":%[1]s,"texts":[%[1]s],"labels":{"k":%[1]s}}]}`, quoted), "f.yaml")
		if err == nil {
			err = f.Decode(&s)
		}
		if err != nil {
			t.Errorf("%s: %v", quoted, err)
		} else if it := s.Items[0]; it.Name != text || it.Texts[0] != text || it.Labels["k"] != text {
			t.Errorf("%s is read as %+v", quoted, it)
		}
	}
}

func TestValuesWithReadersOfTheirOwnMayBeAnchors(t *testing.T) {
	t.Parallel()
	f, err := Parse([]byte("items:\n- wait: &w 3s\n  when: &at 2030-01-02T15:04:05Z\n  text: &short 5s\n- {wait: *w, when: *at, text: *short}\n"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var s sample
	if err := f.Decode(&s); err != nil || len(s.Items) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, item := range s.Items {
		if item.Wait != wait(3*time.Second) || !item.When.Equal(time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)) || item.Text != "5s" {
			t.Errorf("%+v", item)
		}
	}
}

// Texts are as YAML 1.2 has them, in each form of its chapters 6 to 9, and a text that looks like a number is not changed.
func TestTextsAreAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	type texts struct {
		Name string            `yaml:"name"`
		Ptr  *string           `yaml:"ptr"`
		All  []string          `yaml:"all"`
		By   map[string]string `yaml:"by"`
		Deep struct {
			All []string `yaml:"all"`
		} `yaml:"deep"`
	}
	for _, plain := range []string{"0123", "007", "0x1F", "0o17", "0b11", "1_000", "1.50", "1e3", ".inf", "-.inf", ".nan", "12", "+12", "true", "True", "yes", "on", "22:22", "1:2:3", "2026-01-01",
		"h:1", "127.0.0.1:2379", "http://h:2379", "a#b", "a:b:c", "-1", "1.2.3", "0.0.0.0:8480"} {
		for form, c := range map[string]struct {
			text string
			got  func(texts) string
		}{
			"block":               {"name: %s\n", func(v texts) string { return v.Name }},
			"block, CRLF":         {"name: %s\r\nby: {}\r\n", func(v texts) string { return v.Name }},
			"comment":             {"name: %s # a comment\n", func(v texts) string { return v.Name }},
			"anchor":              {"name: &a %s\n", func(v texts) string { return v.Name }},
			"document start, end": {"---\nname: %s\n...\n", func(v texts) string { return v.Name }},
			"directive":           {"%%YAML 1.2\n---\nname: %s\n", func(v texts) string { return v.Name }},
			"pointer":             {"ptr: %s\n", func(v texts) string { return *v.Ptr }},
			"flow":                {"{name: %s}\n", func(v texts) string { return v.Name }},
			"flow, more":          {"{name: %s, by: {}}\n", func(v texts) string { return v.Name }},
			"block list":          {"all:\n- x\n- %s\n", func(v texts) string { return v.All[1] }},
			"flow list":           {"all: [x, %s]\n", func(v texts) string { return v.All[1] }},
			"flow list in flow":   {"deep: {all: [%s, x]}\n", func(v texts) string { return v.Deep.All[0] }},
			"flow list, lines":    {"deep: {all: [x,\n  %s]}\n", func(v texts) string { return v.Deep.All[1] }},
			"by name":             {"by:\n  k: %s\n", func(v texts) string { return v.By["k"] }},
			"quoted":              {"deep: {all: ['%s']}\n", func(v texts) string { return v.Deep.All[0] }},
			"double quoted":       {"name: \"%s\"\n", func(v texts) string { return v.Name }},
			"literal":             {"name: |-\n  %s\n", func(v texts) string { return v.Name }},
			"folded":              {"name: >-\n  %s\n", func(v texts) string { return v.Name }},
			"CR":                  {"name: %s\rby: {}\r", func(v texts) string { return v.Name }},
			"document end, start": {"# c\n---\n# d\n---\nname: %s\n---\n# e\n", func(v texts) string { return v.Name }},
			"merge":               {"by: {<<: {k: %s}}\n", func(v texts) string { return v.By["k"] }},
			"alias":               {"name: &a %s\nptr: *a\n", func(v texts) string { return *v.Ptr }},
			"alias in a list":     {"name: &a %s\nall: [*a]\n", func(v texts) string { return v.All[0] }},
			"tabs around":         {"name:\t%s\t# c\n", func(v texts) string { return v.Name }},
			"key":                 {"by:\n  %s: k\n", func(v texts) string { return slices.Collect(maps.Keys(v.By))[0] }},
			"lines in quotes":     {"name: \"%s\r\n  b\"\r\n", func(v texts) string { return strings.TrimSuffix(v.Name, " b") }},
			"byte order mark":     {"\ufeffname: %s\n", func(v texts) string { return v.Name }},
		} {
			var v texts
			f, err := Parse(fmt.Appendf(nil, c.text, plain), "f.yaml")
			if err == nil {
				err = f.Decode(&v)
			}
			if err != nil {
				t.Errorf("%s in %s: %v", plain, form, err)
			} else if got := c.got(v); got != plain {
				t.Errorf("%s in %s is read as %q", plain, form, got)
			}
		}
	}
}
