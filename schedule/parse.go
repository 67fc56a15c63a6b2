package schedule

import (
	"fmt"

	"github.com/tocsinhq/tocsin/internal/yamlfile"
)

// Parse reads the definitions of a YAML file of the form
//
//	schedules:
//	  - name: report.daily
//	    biz_type: report.make
//	    cron: 0 4 * * *
//	    zone: Europe/Berlin
//
// and validates them. Each message is one line, with file and the place:
// configs/schedules.yaml:4: unknown key "corn".
func Parse(text []byte, file string) ([]Definition, error) {
	f, err := yamlfile.Parse(text, file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Schedules []Definition `yaml:"schedules"`
	}
	if err := f.Decode(&content); err != nil {
		return nil, err
	}
	all := content.Schedules
	if len(all) == 0 {
		return nil, f.Errorf("$.schedules", "no schedules")
	}
	var found []Fault
	seen := map[string]bool{}
	for i, d := range all {
		of := yamlfile.Faults{Within: fmt.Sprintf("schedules[%d].", i), Of: "schedule " + label(d.Name)}
		for _, fault := range d.Faults() {
			of.Note(fault.Field, fault.Err)
		}
		of.Refuse(seen[d.Name], "name", "the name stands twice")
		found = append(found, of.Found...)
		seen[d.Name] = true
	}
	return all, f.Place(found)
}
