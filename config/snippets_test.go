package config

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/schedule"
)

var (
	yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```")
	fileBlock = regexp.MustCompile(`(?ms)^cat >\w+\.yaml <<'END'\n(.*?)^END$`)
)

// snippets are the YAML texts of a page: its blocks, and the files that its commands write.
func snippets(page string) (all []string) {
	for _, block := range yamlBlock.FindAllStringSubmatch(page, -1) {
		all = append(all, regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], ""))
	}
	for _, block := range fileBlock.FindAllStringSubmatch(page, -1) {
		all = append(all, block[1])
	}
	return all
}

// foreign begins a text that other programs read.
var foreign = regexp.MustCompile(`(?m)^(groups|route|receivers|scrape_configs|services|apiVersion|- job_name|config|tokens):`)

// Whoever pastes a piece of the docs gets no error of ours.
func TestEveryPieceOfYAMLInTheDocsIsTaken(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, path := range append(pages, "../README.md", "../examples/shop/README.md") {
		for _, text := range snippets(string(read(t, path))) {
			var err error
			switch {
			case foreign.MatchString(text):
				continue
			case strings.Contains(text, "biz_types:\n") && !strings.Contains(text, "console:"):
				_, err = biztype.Parse([]byte(text), path)
			case strings.Contains(text, "schedules:"):
				_, err = schedule.Parse([]byte(text), path)
			default:
				err = piece(text, path)
			}
			if taken++; err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
	if taken < 14 {
		t.Errorf("only %d pieces are found", taken)
	}
}

// piece reads a part of a config.
func piece(text, path string) error {
	text = regexp.MustCompile(`(?m)^ +tls: \{ca:.*\n`).ReplaceAllString(text, "") // its files are not here
	for key, rest := range map[string]string{
		"cluster": "cluster: c\n",
		"layout":  "layout: {databases: 1, tables: 1}\n", "servers": "servers:\n  - dsn: root@tcp(h:1)/\n", "node": someTokens, "etcd": "etcd: {endpoints: [\"h:2379\"]}\n",
	} {
		if !regexp.MustCompile(`(?m)^` + key + `:`).MatchString(text) {
			text = rest + strings.TrimPrefix(text, "\n")
		}
	}
	_, err := Parse([]byte(text), path, func(string) (string, bool) { return strings.Repeat("k", 32), true })
	return err
}
