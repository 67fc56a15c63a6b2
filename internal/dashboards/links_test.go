package dashboards

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	runbookPage  = "../../docs/runbook.md"
	dashboardURL = "/d/"
)

// Panels link to sections of the runbook, and alerts to dashboards.
func TestLinksBetweenAlertsRunbookAndDashboards(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(runbookPage)
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(page), -1) {
		headings[strings.ToLower(m[1])] = true
	}
	linked := map[string]bool{}
	variables := map[string][]string{}
	for _, d := range read(t) {
		uid := "tocsin-" + strings.TrimSuffix(d.File, ".json")
		for _, v := range d.Templating.List {
			variables[uid] = append(variables[uid], v.Name)
		}
		for _, p := range d.Panels {
			for _, l := range p.Links {
				_, anchor, _ := strings.Cut(l.URL, "runbook.md#")
				linked[anchor] = true
				if !headings[anchor] {
					t.Errorf("%s: %s: docs/runbook.md has no section %q", d.File, p.Title, anchor)
				}
			}
		}
	}
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts[strings.ToLower(r.Alert)] = true
		uid, query, _ := strings.Cut(r.Annotations["dashboard_url"][strings.Index(r.Annotations["dashboard_url"], dashboardURL)+len(dashboardURL):], "?")
		name := regexp.MustCompile(`^var-(\w+)=`).FindStringSubmatch(query)
		if variables[uid] == nil || query != "" && (name == nil || !slices.Contains(variables[uid], name[1])) {
			t.Errorf("%s: its dashboard_url leads nowhere: %s", r.Alert, r.Annotations["dashboard_url"])
		}
	}
	for anchor := range alerts {
		if !linked[anchor] {
			t.Errorf("no panel links to the alert %s: give it one that shows what the alert is about", anchor)
		}
	}
	for anchor := range linked {
		if !alerts[anchor] {
			t.Errorf("panels link to the alert %s, which there is not", anchor)
		}
	}
	t.Logf("panels link to %d of %d alerts", len(linked), len(alerts))
}
