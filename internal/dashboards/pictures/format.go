package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// short writes a number with at most three digits.
func short(v float64) string {
	text := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.Contains(text, "e") {
		text = strconv.FormatFloat(v, 'f', 0, 64)
	}
	return text
}

// scaled divides a value by the largest unit that it reaches.
func scaled(v float64, units []unit) string {
	for _, u := range units {
		if math.Abs(v) >= u.size {
			return short(v/u.size) + u.name
		}
	}
	return short(v)
}

type unit struct {
	size float64
	name string
}

var (
	spans    = []unit{{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}}
	binaries = []unit{{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}, {1, " B"}}
	decimals = []unit{{1e9, " G"}, {1e6, " M"}, {1e3, " K"}}
)

// inUnit writes a value in one of Grafana's units.
func inUnit(v float64, of string) string {
	switch {
	case math.IsInf(v, 0):
		return "infinite"
	case v == 0 && of == "s":
		return "0 s"
	case of == "s":
		return scaled(v, spans)
	case of == "percentunit":
		return short(v*100) + " %"
	case of == "bytes":
		return scaled(v, binaries)
	case of == "cps":
		return scaled(v, decimals) + " /s"
	}
	return scaled(v, decimals)
}

// nice returns the step of an axis with about four steps: 1, 2 or 5 times a power of ten, of minutes or binary units if the
// axis is as high.
func nice(height float64, of string) float64 {
	base := 1.
	switch {
	case of == "s" && height > 4*3600:
		base = 3600
	case of == "s" && height > 4*60:
		base = 60
	case of == "bytes":
		base = math.Pow(1024, math.Floor(math.Log2(max(height, 1))/10))
	}
	raw := height / base / 4
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, k := range []float64{1, 2, 5} {
		if k*power >= raw {
			return k * power * base
		}
	}
	return 10 * power * base
}

// canvas collects the parts of an SVG picture.
type canvas struct {
	strings.Builder
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) rect(x, y, w, h float64, style string) {
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>`, x, y, w, h, style)
}

func (c *canvas) text(x, y float64, style, text string) {
	c.add(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, style, escape.Replace(text))
}

func (c *canvas) rule(x1, y1, x2, y2 float64, style string) {
	c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x1, y1, x2, y2, style)
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
