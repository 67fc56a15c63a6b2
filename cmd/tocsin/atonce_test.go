package main

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Commands that the same deployment runs in several places at once all succeed, and one says that it changed something.
func TestTheSameCommandFromManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.exec("CREATE DATABASE {prefix}_shop")
	s.write("biz.yaml", bizYAML)
	s.write("schedules.yaml", schedulesYAML)
	for _, step := range []struct {
		said string // by the process that changed something; "": each may
		args []string
	}{
		{"", []string{"ddl", "apply"}},
		{"", []string{"ddl", "finish"}},
		{"order.close    number 1  added", []string{"biz", "apply", "biz.yaml"}},
		{"order.close  number 1  changed", []string{"biz", "pause", "order.close"}},
		{"order.close  number 1  changed", []string{"biz", "resume", "order.close"}},
		{"report.daily  created", []string{"schedule", "apply", "schedules.yaml"}},
		{"is made", []string{"outbox", "apply", "--dsn", s.dsn(), "--table", s.prefix + "_shop.tocsin_outbox"}},
	} {
		results, _ := devtest.AtOnce(4, func(int) (result, error) { return s.run(step.args...), nil })
		did := 0
		for _, r := range results {
			if r.code != exitOK {
				t.Errorf("%v: exit code %d\n%s%s", step.args, r.code, r.stdout, r.stderr)
			}
			if strings.Contains(r.stdout, step.said) {
				did++
			}
		}
		if step.said != "" && did != 1 {
			t.Errorf("%v: %d say %q: %+v", step.args, did, step.said, results)
		}
	}
}
