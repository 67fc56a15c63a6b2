package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/dashboards/live"
)

// Sizes in pixels: of a cell of Grafana's grid, of the heading, and of the gap around a panel.
const (
	cellW, cellH = 60., 34.
	heading      = 56.
	gap          = 4.
)

// palette holds the colours of lines, one after the other.
var palette = []string{"#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#8ab8ff", "#fa6400", "#c4162a", "#96d98d", "#ffee52"}

// shades are Grafana's colours of thresholds and states.
var shades = map[string]string{"green": "#73bf69", "blue": "#5794f2", "yellow": "#f2cc0c", "red": "#f2495c"}

// area is a place on the picture.
type area struct{ x, y, w, h float64 }

func drawBoard(ctx context.Context, p *live.Prometheus, d dashboards.Dashboard, s span) (*canvas, error) {
	rows := 0
	for _, panel := range d.Panels {
		rows = max(rows, panel.GridPos.Y+panel.GridPos.H)
	}
	height := heading + float64(rows)*cellH
	var c canvas
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="DejaVu Sans, sans-serif" font-size="11" fill="#ccccdc">`, 24*cellW, height)
	c.rect(0, 0, 24*cellW, height, `fill="#111217"`)
	c.text(10, 24, `font-size="18"`, d.Title)
	c.text(10, 44, `fill="#8e8e9e"`, fmt.Sprintf("Drawn from Prometheus by internal/dashboards/pictures; this is not Grafana. %s to %s",
		s.from.Format(time.DateTime), s.to().Format(time.TimeOnly)))
	for _, panel := range d.Panels {
		g := panel.GridPos
		at := area{float64(g.X)*cellW + gap, heading + float64(g.Y)*cellH + gap, float64(g.W)*cellW - 2*gap, float64(g.H)*cellH - 2*gap}
		if panel.Type == "row" {
			c.text(at.x, at.y+18, `font-size="14" fill="#ffffff"`, panel.Title)
			continue
		}
		all, err := linesOf(ctx, p, d, panel, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", panel.Title, err)
		}
		drawPanel(&c, at, panel, all, s)
	}
	c.add("</svg>")
	return &c, nil
}

// drawPanel draws the frame of a panel, and what is in it.
func drawPanel(c *canvas, at area, p dashboards.Panel, all []line, s span) {
	c.rect(at.x, at.y, at.w, at.h, `fill="#181b1f" stroke="#2c3038" rx="2"`)
	c.text(at.x+8, at.y+16, `font-size="12" fill="#ffffff"`, cut(p.Title, int(at.w/7.2)))
	if len(all) == 0 {
		c.text(at.x+at.w/2, at.y+at.h/2+6, `text-anchor="middle" fill="#8e8e9e" font-size="13"`, "no data")
		return
	}
	inside := area{at.x + 8, at.y + 24, at.w - 16, at.h - 30}
	switch p.Type {
	case "stat":
		drawNumber(c, inside, p, all)
	case "state-timeline":
		drawStates(c, inside, p, all)
	default:
		drawLines(c, inside, p, all, s)
	}
}

// color returns that of a value by the thresholds.
func color(p dashboards.Panel, v float64) string {
	found := "#ccccdc"
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || v >= *step.Value {
			found = shades[step.Color]
		}
	}
	return found
}

func drawNumber(c *canvas, at area, p dashboards.Panel, all []line) {
	v := all[0].last()
	shade := color(p, v)
	low, high := bounds(all[:1])
	graph := area{at.x, at.y + at.h*.55, at.w, at.h * .45}
	c.add(`<path d="%s" fill="none" stroke="%s" stroke-opacity="0.5"/>`, path(all[0].values, graph, low, max(high, low+1e-9)), shade)
	c.text(at.x+at.w/2, at.y+at.h*.5+6, fmt.Sprintf(`text-anchor="middle" font-size="28" fill="%s"`, shade), inUnit(v, p.FieldConfig.Defaults.Unit))
}

// path draws values from left to right, with gaps where there is none.
func path(values []float64, at area, low, high float64) string {
	var b strings.Builder
	pen := "M"
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			pen = "M"
			continue
		}
		x, y := at.place(i, len(values), (v-low)/(high-low))
		fmt.Fprintf(&b, "%s%.1f %.1f ", pen, x, y)
		pen = "L"
	}
	return b.String()
}

// place returns where the i-th of n values is, at a share of the height.
func (a area) place(i, n int, up float64) (x, y float64) {
	return a.x + a.w*float64(i)/float64(max(n-1, 1)), a.y + a.h*(1-up)
}

func drawLines(c *canvas, at area, p dashboards.Panel, all []line, s span) {
	names := drawLegend(c, at, all, p.FieldConfig.Defaults.Unit)
	plot := area{at.x + 58, at.y + 4, at.w - 64, at.h - names - 22}
	drawn := all
	stacked := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	if stacked {
		drawn = stack(all)
	}
	low, high := bounds(drawn)
	if high == low {
		high = low + 1
	}
	drawAxes(c, plot, low, high*1.05, p.FieldConfig.Defaults.Unit, s)
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value != nil && *step.Value > low && *step.Value < high*1.05 {
			_, y := plot.place(0, 1, (*step.Value-low)/(high*1.05-low))
			c.rule(plot.x, y, plot.x+plot.w, y, fmt.Sprintf(`stroke="%s" stroke-dasharray="5 4" stroke-opacity="0.8"`, shades[step.Color]))
		}
	}
	for i := range drawn {
		i = len(drawn) - 1 - i // those at the bottom of a stack are drawn last
		shade, d := palette[i%len(palette)], path(drawn[i].values, plot, low, high*1.05)
		if stacked && d != "" {
			_, floor := plot.place(0, 1, (0-low)/(high*1.05-low))
			c.add(`<path d="%sL%.1f %.1f L%.1f %.1f Z" fill="%s" fill-opacity="0.9" stroke="%s"/>`, d, plot.x+plot.w, floor, plot.x, floor, shade, shade)
			continue
		}
		c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.4"/>`, d, shade)
	}
}

// drawAxes draws the grid with values at the left and times below.
func drawAxes(c *canvas, plot area, low, high float64, unit string, s span) {
	step := nice(high-low, unit)
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		_, y := plot.place(0, 1, (v-low)/(high-low))
		c.rule(plot.x, y, plot.x+plot.w, y, `stroke="#2c3038"`)
		c.text(plot.x-6, y+4, `text-anchor="end" font-size="10"`, inUnit(math.Round(v/step)*step, unit))
	}
	for i := s.n / 10; i < s.n; i += max(s.n/5, 1) {
		x, _ := plot.place(i, s.n, 0)
		c.text(x, plot.y+plot.h+14, `text-anchor="middle" font-size="10"`, s.from.Add(time.Duration(i)*s.step).Format("15:04:05"))
	}
}

// maxNames is how many lines a legend names.
const maxNames = 12

// drawLegend names the lines at the bottom, with their last values, and returns its height.
func drawLegend(c *canvas, at area, all []line, unit string) (height float64) {
	type entry struct {
		x, row float64
		text   string
	}
	var entries []entry
	x, row := 0., 0.
	for i, l := range all {
		text := fmt.Sprintf("%s  %s", l.name, inUnit(l.last(), unit))
		if i == maxNames {
			text = fmt.Sprintf("and %d more", len(all)-maxNames)
		}
		w := 26 + 6.6*float64(len(text))
		if x > 0 && x+w > at.w {
			x, row = 0, row+1
		}
		entries = append(entries, entry{x, row, text})
		if x += w; i == maxNames {
			break
		}
	}
	height = (row + 1) * 14
	for i, e := range entries {
		y := at.y + at.h - height + e.row*14 + 12
		c.rect(at.x+e.x, y-7, 12, 4, fmt.Sprintf(`fill="%s"`, palette[i%len(palette)]))
		c.text(at.x+e.x+16, y, `font-size="11"`, e.text)
	}
	return height
}

// drawStates draws a bar for each line, in the colours of its values.
func drawStates(c *canvas, at area, p dashboards.Panel, all []line) {
	words := statesOf(p)
	bar := min(at.h/float64(len(all)), 40)
	for i, l := range all {
		y := at.y + float64(i)*bar
		c.text(at.x, y+bar/2+4, `font-size="11"`, cut(l.name, 24))
		w := (at.w - 170) / float64(len(l.values))
		for j, v := range l.values {
			if s, ok := words[strconv.FormatFloat(v, 'f', -1, 64)]; ok {
				c.rect(at.x+170+float64(j)*w, y+2, w+.5, bar-4, fmt.Sprintf(`fill="%s"`, shades[s.Color]))
			}
		}
		if s, ok := words[strconv.FormatFloat(l.last(), 'f', -1, 64)]; ok {
			c.text(at.x+at.w-6, y+bar/2+4, `text-anchor="end" fill="#111217"`, s.Text)
		}
	}
}

// meaning is how a state is shown.
type meaning struct{ Text, Color string }

// statesOf returns the meaning of each value.
func statesOf(p dashboards.Panel) map[string]meaning {
	all := map[string]meaning{}
	for _, m := range p.FieldConfig.Defaults.Mappings {
		if m.Type == "value" && json.Unmarshal(m.Options, &all) != nil {
			return nil
		}
	}
	return all
}

func cut(text string, n int) string {
	if len(text) > n {
		return text[:n-1] + "…"
	}
	return text
}
