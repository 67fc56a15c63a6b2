package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// scheduleFields are the fields of a definition in the order of the form, by their names in YAML, as changes and faults name them.
var scheduleFields = []string{
	"name", "app", "biz_type", "biz_id", "key", "cron", "zone", "start", "end", "jitter", "missed", "missed_most", "start_within", "overlap", "pause_after",
	"payload_version", "headers", "payload",
}

// Of the form: what can be chosen, the default first, what has many lines, what never changes, and what must be filled in.
var (
	fieldOptions = map[string][]string{"missed": {"once", "skip", "all"}, "overlap": {"allow", "skip", "queue", "replace"}}
	longFields   = []string{"payload", "headers"}
	fixedFields  = []string{"name", "biz_id", "key"}
	neededFields = []string{"name", "biz_type", "cron"}
)

// formField is a field of the form.
type formField struct {
	Name, Value string
	Options     []string
	Long, Fixed bool
	Needed      bool
	Unseen      bool   // a form would change it, or it can't be seen: it stays as it is
	Fault       string // what is wrong with it
}

// formOf writes a definition as texts, by the names of its fields.
func (v *visit) formOf(d api.ScheduleDefinition) map[string]string {
	form := map[string]string{
		"name": d.Name, "app": d.App, "biz_type": d.BizType, "biz_id": string(d.BizID), "key": d.Key, "cron": d.Cron, "zone": d.Zone,
		"start": v.stamp(d.Start), "end": v.stamp(d.End), "jitter": string(d.Jitter), "missed": d.Missed, "start_within": string(d.StartWithin), "overlap": d.Overlap,
	}
	for name, n := range map[string]api.Int{"missed_most": d.MissedMost, "pause_after": d.PauseAfter, "payload_version": d.PayloadVersion} {
		if n != 0 {
			form[name] = strconv.FormatInt(int64(n), 10)
		}
	}
	if d.Payload != nil {
		form["payload"] = *d.Payload
	}
	if len(d.Headers) > 0 {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		_ = e.Encode(d.Headers) // texts
		form["headers"] = strings.TrimSpace(text.String())
	}
	return form
}

// stamp writes a time in the zone of the visit, to be read again exactly; "" for none. Zones of the 19th century, which have seconds, can't be written.
func (v *visit) stamp(at *api.Time) string {
	if at == nil {
		return ""
	}
	zone := v.zone
	if _, offset := at.In(zone).Zone(); offset%60 != 0 {
		zone = time.UTC
	}
	return at.In(zone).Format(time.RFC3339Nano)
}

// definitionOf reads a definition from texts, and says which of them can't be read. The API checks the rest.
func (v *visit) definitionOf(form map[string]string) (d api.ScheduleDefinition, faults []api.Fault) {
	note := func(field, text string) { faults = append(faults, api.Fault{Location: "body." + field, Message: text}) }
	payload := form["payload"]
	d = api.ScheduleDefinition{Name: form["name"], ScheduleFields: api.ScheduleFields{
		App: form["app"], BizType: form["biz_type"], BizID: api.ID(form["biz_id"]), Key: form["key"], Cron: form["cron"], Zone: form["zone"], Jitter: api.Duration(form["jitter"]),
		Payload: &payload, StartWithin: api.Duration(form["start_within"]), Missed: form["missed"], Overlap: form["overlap"],
	}}
	for name, into := range map[string]*api.Int{"missed_most": &d.MissedMost, "pause_after": &d.PauseAfter, "payload_version": &d.PayloadVersion} {
		if text := form[name]; text != "" {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				note(name, v.T("problem.whole"))
			}
			*into = api.Int(n)
		}
	}
	for name, into := range map[string]**api.Time{"start": &d.Start, "end": &d.End} {
		if text := form[name]; text != "" {
			at, err := v.timeOf(text)
			if err != nil {
				note(name, v.T("problem.instant"))
			}
			*into = &api.Time{Time: at}
		}
	}
	if text := form["headers"]; text != "" && json.Unmarshal([]byte(text), &d.Headers) != nil {
		note("headers", v.T("problem.headers"))
	}
	return d, faults
}

// typedForm is what was typed: what a form does not have is as base has it.
func (v *visit) typedForm(base api.ScheduleDefinition, isNew bool) map[string]string {
	form := v.formOf(base)
	for _, name := range scheduleFields {
		values, given := v.r.PostForm[name]
		switch {
		case !given || !isNew && slices.Contains(fixedFields, name) || v.Shown(form[name]) != form[name]:
		case name == "payload":
			form[name] = strings.ReplaceAll(values[0], "\r\n", "\n") // as browsers send a line's end
		default:
			form[name] = strings.TrimSpace(values[0])
		}
	}
	return form
}

// fields are those of the form, with what is wrong with each. They are as base where a form can't have them.
func (v *visit) fields(form map[string]string, base api.ScheduleDefinition, isNew bool, faults []api.Fault) []formField {
	all, kept := make([]formField, 0, len(scheduleFields)), v.formOf(base)
	for _, name := range scheduleFields {
		f := formField{
			Name: name, Value: form[name], Options: fieldOptions[name], Long: slices.Contains(longFields, name), Fixed: !isNew && slices.Contains(fixedFields, name),
			Needed: slices.Contains(neededFields, name), Unseen: v.Shown(kept[name]) != kept[name],
		}
		if f.Fixed && f.Value == "" {
			continue
		}
		for _, fault := range faults {
			if fault.Location == "body."+name || strings.HasPrefix(fault.Location, "body."+name+".") {
				f.Fault = fault.Message
			}
		}
		all = append(all, f)
	}
	return all
}

// Hint says what a field takes; "" if there is no text.
func (v *visit) Hint(name string) string {
	if hint := v.Word("hint", name); hint != name {
		return hint
	}
	return ""
}

// otherFaults are faults of no field of the form.
func otherFaults(faults []api.Fault) (all []string) {
	for _, fault := range faults {
		name, _, _ := strings.Cut(strings.TrimPrefix(fault.Location, "body."), ".")
		if !slices.Contains(scheduleFields, name) {
			all = append(all, fault.Message)
		}
	}
	return all
}

// digest tells what was shown from what has changed since.
func digest(shown any) string {
	sum := sha256.Sum256([]byte(text(shown)))
	return hex.EncodeToString(sum[:12])
}

// editor is a schedule that is edited, or a new one.
type editor struct {
	Name     string // of the schedule; "": it is new
	Tag      string // ETag of what was read
	Base     string // the definition that was read, as JSON
	Seen     string // digest of the definition that may be saved, as its preview was shown; "": none
	Fields   []formField
	Faults   []string // of no field
	BizTypes []api.BizType
	Preview  *preview
	Merge    *merge
	Changed  bool // since the preview, so that was shown again in place of saving

	base api.ScheduleDefinition
	form map[string]string
}

// preview is what a definition would do.
type preview struct {
	Definition api.ScheduleDefinition
	Changes    []api.FieldChange // from what is stored; of a new one: none
	Times      []api.Time
}

// show is the page of an editor.
func (e *editor) show(v *visit, faults []api.Fault, problem *api.Problem) *page {
	if types, unknown := ask[api.BizTypes](v, call{path: "/biz-types"}); unknown == nil {
		e.BizTypes = types.BizTypes
	}
	if problem != nil {
		faults = append(faults, problem.Errors...)
	}
	if len(faults) > 0 && (problem == nil || problem.Status == http.StatusUnprocessableEntity) {
		problem = v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.fields")
	}
	e.Base, e.Fields, e.Faults = text(e.base), v.fields(e.form, e.base, e.Name == "", faults), otherFaults(faults)
	p := &page{name: "scheduleedit", Nav: "schedules", Title: v.T("edit.new"), Data: e, Problem: problem}
	if p.Shell = []string{v.curl("POST", "/schedules", `{...}`), "tocsin schedule apply FILE"}; e.Name != "" {
		p.Title = v.T("edit.title", v.Shown(e.Name))
		p.Shell = []string{
			v.curl("PUT", pathOf("schedules", e.Name), "{...}") + " -H " + quoted("If-Match: "+e.Tag), words("tocsin schedule show", e.Name) + " > FILE", "tocsin schedule apply FILE --dry-run", "tocsin schedule apply FILE",
		}
	}
	if e.Merge != nil && problem == nil {
		p.Status = http.StatusPreconditionFailed
	}
	return p
}
