package yamlfile

import (
	"fmt"
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
		Name  string    `yaml:"name"`
		Count int       `yaml:"count"`
		Big   uint64    `yaml:"big"`
		On    bool      `yaml:"on"`
		Rate  float64   `yaml:"rate"`
		Wait  wait      `yaml:"wait"`
		When  time.Time `yaml:"when"`
		Text  text      `yaml:"text"`
		Waits []wait    `yaml:"waits"`
		Deep  *struct {
			Key string `yaml:"key"`
		} `yaml:"deep"`
	} `yaml:"items"`
	Limits map[string]struct {
		Burst int `yaml:"burst"`
	} `yaml:"limits"`
}

func TestMistakesAreOneLineWithTheirPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":           {"items:\n  - name: a\n    nmae: b\n", `f.yaml:3: unknown key "nmae": use name, count, big, on, rate, wait, when, text, waits, deep`},
		"unknown key deep down": {"items:\n  - name: a\n    deep:\n      kye: b\n", `f.yaml:4: unknown key "kye": use key`},
		"unknown key on top":    {"item: []\n", `f.yaml:1: unknown key "item": use items, limits`},
		"unknown key by name":   {"limits:\n  a:\n    brust: 1\n", `f.yaml:3: unknown key "brust": use burst`},
		"fraction by name":      {"limits: {a: {burst: 4.5}}\n", `f.yaml:1: "4.5" is not a whole number`},
		"repeated key":          {"items:\n  - name: a\n    name: b\n", `f.yaml:3: mapping key "name" already defined in line 2`},
		"text for a number":     {"items:\n  - count: many\n", `f.yaml:2: "many" is not a whole number`},
		"fraction for a number": {"items:\n  - name: a\n    count: 4.5\n", `f.yaml:3: "4.5" is not a whole number`},
		"quoted fraction":       {"items:\n  - count: '4.5'\n", `f.yaml:2: "4.5" is not a whole number`},
		"power for a number":    {"items:\n  - big: 1e1\n", `f.yaml:2: "1e1" is not a whole number`},
		"octal number":          {"items:\n  - big: 010\n", `f.yaml:2: "010" is not a whole number`},
		"mapping for a text":    {"items:\n  - deep: {key: {h:1}}\n", `f.yaml:2: a mapping is not a text: put it in single quotes, such as '{"order":42}'`},
		"colon in brackets":     {"items:\n  - {name: [h:1]}\n", `f.yaml:2: a list is not a text: put it in single quotes, such as '{"order":42}'`},
		"text for a rate":       {"items:\n  - rate: fast\n", `f.yaml:2: "fast" is not a number`},
		"text for a switch":     {"items:\n  - on: maybe\n", `f.yaml:2: "maybe" is not true or false`},
		"negative number":       {"items:\n  - name: a\n    big: -1\n", `f.yaml:3: -1 is out of range`},
		"number for a list":     {"items: 3\n", `f.yaml:1: a list belongs here, not a number`},
		"list for a mapping":    {"items:\n  - deep: [a]\n", `f.yaml:2: a mapping (NAME: VALUE) belongs here, not a list`},
		"own reader":            {"items:\n  - name: a\n    wait: 3x\n", `f.yaml:3: "3x" is not a duration`},
		"own reader in a list":  {"items:\n  - waits:\n      - 1s\n      - 3x\n", `f.yaml:4: "3x" is not a duration`},
		"text for a time":       {"items:\n  - when: soon\n", `f.yaml:2: "soon" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
		"no such day":           {"items:\n  - when: 2030-02-30T15:04:05Z\n", `f.yaml:2: "2030-02-30T15:04:05Z" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
		"time without a zone":   {"items:\n  - when: 2030-01-02 15:04:05\n", `f.yaml:2: "2030-01-02 15:04:05" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
		"number for a time":     {"items:\n  - when: 12\n", `f.yaml:2: "12" is not a time with a zone, such as 2030-01-02T15:04:05Z`},
		"star without quotes":   {"items:\n  - name: */5 * * * *\n", `f.yaml:2: value is not allowed in this context. map key-value is pre-defined: a value that begins with * or @ needs quotes, such as cron: "*/5 * * * *"`},
		"stars without quotes":  {"items:\n  - name: * * * * *\n", `f.yaml:2: undefined alias name: a value that begins with * or @ needs quotes, such as cron: "*/5 * * * *"`},
		"at without quotes":     {"items:\n  - name: @daily\n", `f.yaml:2: '@' is a reserved character: a value that begins with * or @ needs quotes, such as cron: "*/5 * * * *"`},
		"colon in a value":      {"items:\n  - name: t:pw: 1\n", `f.yaml:2: mapping value is not allowed in this context: a value with ": " in it needs quotes`},
		"IPv6 in brackets":      {"items:\n  - deep: {key: [[::1]:2379]}\n", `f.yaml:2: found an invalid key for this map: within braces and brackets, a value with any of [ ] { } or a comma in it needs quotes, such as "[::1]:2379"`},
		"braces in braces":      {"items:\n  - {name: http://x/a?b={c}}\n", `f.yaml:2: ',' or '}' must be specified: within braces and brackets, a value with any of [ ] { } or a comma in it needs quotes, such as "[::1]:2379"`},
		"broken brackets":       {"items:\n  - name: [\n", `f.yaml:2: sequence end token ']' not found`},
		"tab":                   {"items:\n\t- name: a\n", `f.yaml:2: a tab stands here: indent YAML with spaces`},
		"tag on nothing":        {"items:\n  - waits: !x \n", `f.yaml:1: the file is not YAML that can be read: runtime error: invalid memory address or nil pointer dereference`},
		"empty":                 {"", `f.yaml:1: the file is empty`},
		"comments only":         {"# nothing\n", `f.yaml:1: the file is empty`},
		"byte order mark":       {"\ufeffitem: []\n", `f.yaml:1: unknown key "item": use items, limits`},
		"two documents":         {"items: []\n---\nitems: []\n", `f.yaml:3: a second document: one file holds one`},
	} {
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
