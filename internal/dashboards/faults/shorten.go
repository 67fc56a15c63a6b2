package main

import (
	"fmt"
	"regexp"
	"time"

	"github.com/tocsinhq/tocsin/internal/dashboards"
)

var (
	pause  = regexp.MustCompile(`(?m)^( +for: )(\d+[smhd])$`)
	window = regexp.MustCompile(`(\[)(\d+[smhd])(\])`)
)

// shorten divides every `for` and every window in the text of rules; no window gets shorter than least. All groups are
// evaluated as often as the others.
func shorten(text string, by int, least time.Duration) string {
	text = pause.ReplaceAllStringFunc(dashboards.AtOneInterval(text), func(found string) string {
		m := pause.FindStringSubmatch(found)
		return m[1] + divided(m[2], by, 0)
	})
	return window.ReplaceAllStringFunc(text, func(found string) string {
		m := window.FindStringSubmatch(found)
		return m[1] + divided(m[2], by, least) + m[3]
	})
}

// divided divides a duration of Prometheus, in whole seconds.
func divided(text string, by int, least time.Duration) string {
	n, unit := 0, ""
	if _, err := fmt.Sscanf(text, "%d%s", &n, &unit); err != nil {
		return text
	}
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	d := max(time.Duration(n)*units[unit]/time.Duration(by), least)
	return fmt.Sprintf("%ds", int(d.Round(time.Second).Seconds()))
}
