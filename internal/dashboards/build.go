package dashboards

//lint:file-ignore SA1019 every Grafana reads this model of dashboards from files, the newer one only recent releases

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// docsURL is where the pages are that panels link to.
const docsURL = "https://github.com/tocsinhq/tocsin/blob/main/docs/"

// tag marks the dashboards, which link to one another by it.
const tag = "tocsin"

// generate returns Grafana's JSON of each dashboard, by the name of its file.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, b := range boards() {
		made, err := b.build().Build()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		placeLinks(made)
		text, err := json.MarshalIndent(made, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		files[b.name+".json"] = append(text, '\n')
	}
	return files, nil
}

// placeLinks leaves all links where they can be seen: by default the SDK puts them into a menu.
func placeLinks(d dashboard.Dashboard) {
	for i := range d.Links {
		d.Links[i].Placement = nil
	}
	for _, p := range d.Panels {
		if p.Panel != nil {
			for i := range p.Panel.Links {
				p.Panel.Links[i].Placement = nil
			}
		}
	}
}

func boards() []board {
	return []board{overview(), bizType(), cluster(), database(), upkeep(), services()}
}

func (b board) build() *dashboard.DashboardBuilder {
	made := dashboard.NewDashboardBuilder("Tocsin / "+b.title).
		Uid("tocsin-"+b.name).Description(b.means).Tags([]string{tag}).
		Time("now-1h", "now").Refresh("30s").Timezone(common.TimeZoneBrowser).Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Readonly().
		Link(dashboard.NewDashboardLinkBuilder("Tocsin").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).AsDropdown(true).IncludeVars(true).KeepTime(true)).
		Link(dashboard.NewDashboardLinkBuilder("What the metrics mean").Type(dashboard.DashboardLinkTypeLink).
			Url(docsURL + "metrics.md").TargetBlank(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	for _, v := range append([]variable{{"cluster", "cluster", "tocsin_build_info"}}, b.vars...) {
		made.WithVariable(v.build())
	}
	id := uint32(0)
	for _, r := range b.rows {
		id++
		made.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		for _, p := range r.panels {
			id++
			made.WithPanel(p.build(id))
		}
	}
	return made
}

// source is the data source that the reader of a dashboard chooses.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// build returns a variable with all values selected at first. "All" also matches series without the label: the label
// cluster exists only if the scrape config adds it.
func (v variable) build() *dashboard.QueryVariableBuilder {
	of := "label_values(" + ofCluster(v.metric) + ", " + v.label + ")"
	if v.name == "cluster" {
		of = "label_values(" + v.metric + ", " + v.label + ")"
	}
	return dashboard.NewQueryVariableBuilder(v.name).Label(v.label).Datasource(source()).
		Query(dashboard.StringOrMap{String: &of}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{
			Selected: new(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

// ownMetric matches a metric of Tocsin in a query, or one that a rule records, with the brace of its labels if it has any.
var ownMetric = regexp.MustCompile(`(\b[a-z_]+:)?\btocsin_[a-z_]+\b(:[a-z0-9_]+)?\{?`)

// ofCluster adds the chosen clusters to each metric of Tocsin in a query.
func ofCluster(expr string) string {
	const chosen = `{cluster=~"$cluster"`
	return ownMetric.ReplaceAllStringFunc(expr, func(metric string) string {
		if name, labelled := strings.CutSuffix(metric, "{"); labelled {
			return name + chosen + ", "
		}
		return metric + chosen + "}"
	})
}

// targets returns the queries as Grafana has them, named A, B, C, ...
func (p panel) targets() []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for i, q := range p.queries {
		all = append(all, prometheus.NewDataqueryBuilder().Datasource(source()).Range().
			Expr(ofCluster(q.expr)).LegendFormat(q.legend).RefId(string(rune('A'+i))))
	}
	return all
}

// links returns the link to the runbook, if there is one.
func (p panel) links() []cog.Builder[dashboard.DashboardLink] {
	if p.runbook == "" {
		return nil
	}
	return []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("Runbook: " + p.runbook).Type(dashboard.DashboardLinkTypeLink).
			Url(docsURL + "runbook.md#" + strings.ToLower(p.runbook)).TargetBlank(true),
	}
}

func (p panel) build(id uint32) cog.Builder[dashboard.Panel] {
	switch p.look {
	case number:
		return p.buildNumber(id)
	case states:
		return p.buildStates(id)
	}
	return p.buildLines(id)
}

func (p panel) buildLines(id uint32) *timeseries.PanelBuilder {
	made := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.means).Datasource(source()).
		Span(p.span()).Height(p.height()).Unit(p.unit).Targets(p.targets()).Links(p.links()).
		Thresholds(p.limits.build()).LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if !p.signed {
		made.Min(0)
	}
	if p.limits != (limits{}) {
		made.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if p.look == stacked {
		made.FillOpacity(60).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	return made
}

func (p panel) buildNumber(id uint32) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.means).Datasource(source()).
		Span(p.span()).Height(p.height()).Unit(p.unit).Targets(p.targets()).Links(p.links()).
		Thresholds(p.limits.build()).Mappings([]dashboard.ValueMapping{unknown()}).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeArea).TextMode(common.BigValueTextModeAuto).Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}

func (p panel) buildStates(id uint32) *statetimeline.PanelBuilder {
	return statetimeline.NewPanelBuilder().Id(id).Title(p.title).Description(p.means).Datasource(source()).
		Span(p.span()).Height(p.height()).Unit(p.unit).Targets(p.targets()).Links(p.links()).
		Thresholds(p.limits.build()).Mappings([]dashboard.ValueMapping{named(p.states)}).
		ShowValue(common.VisibilityModeNever).MergeValues(true).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
}

// unknown shows a value that is not known in words.
func unknown() dashboard.ValueMapping {
	made := dashboard.NewSpecialValueMap()
	made.Options.Match = dashboard.SpecialValueMatchNullAndNan
	made.Options.Result = dashboard.ValueMappingResult{Text: new("not known")}
	return dashboard.ValueMapping{SpecialValueMap: made}
}

// named shows the values 0, 1, 2, ... as words.
func named(all []state) dashboard.ValueMapping {
	made := dashboard.NewValueMap()
	for i, s := range all {
		made.Options[strconv.Itoa(i)] = dashboard.ValueMappingResult{Text: &s.word, Color: &s.color, Index: new(int32(i))}
	}
	return dashboard.ValueMapping{ValueMap: made}
}

// build returns the steps from low values to high ones, each with its colour.
func (l limits) build() *dashboard.ThresholdsConfigBuilder {
	steps := []dashboard.Threshold{{Color: green}}
	switch {
	case l == (limits{}):
	case l.bad < l.warn:
		steps = []dashboard.Threshold{{Color: red}, {Value: &l.bad, Color: yellow}, {Value: &l.warn, Color: green}}
	case l.bad == l.warn:
		steps = append(steps, dashboard.Threshold{Value: &l.bad, Color: red})
	default:
		steps = append(steps, dashboard.Threshold{Value: &l.warn, Color: yellow}, dashboard.Threshold{Value: &l.bad, Color: red})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}
