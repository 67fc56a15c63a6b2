package biztype

import "github.com/tocsinhq/tocsin/internal/yamlfile"

// Parse reads the policies of a YAML file of the form
//
//	biz_types:
//	  - name: order.close
//	    number: 1
//	    group: orders
//
// and validates them. file stands in the messages, each of which is one line
// with its place: configs/biz.yaml:12: unknown key "tmeout".
func Parse(text []byte, file string) ([]Policy, error) {
	f, err := yamlfile.Parse(text, file)
	if err != nil {
		return nil, err
	}
	var content struct {
		BizTypes []Policy `yaml:"biz_types"`
	}
	if err := f.Decode(&content); err != nil {
		return nil, err
	}
	if len(content.BizTypes) == 0 {
		return nil, f.Errorf("$.biz_types", "no biz types")
	}
	return content.BizTypes, f.Place(faults(content.BizTypes).Found)
}
