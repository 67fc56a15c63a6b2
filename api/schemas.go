package api

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// open lets answers have further properties in openapi.yaml, as later versions may add some. Requests may not.
func open(doc *huma.OpenAPI) {
	asked := map[string]bool{}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			for _, content := range op.RequestBody.Content {
				reach(doc.Components.Schemas.Map(), content.Schema, asked)
			}
		}
	}
	for name, s := range doc.Components.Schemas.Map() {
		if !asked[name] && s.AdditionalProperties == false {
			s.AdditionalProperties = nil
		}
	}
}

// reach notes the schemas that a schema refers to, by name.
func reach(all map[string]*huma.Schema, s *huma.Schema, found map[string]bool) {
	if s == nil {
		return
	}
	name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	if name != "" && !found[name] {
		found[name] = true
		reach(all, all[name], found)
	}
	reach(all, s.Items, found)
	for _, property := range s.Properties {
		reach(all, property, found)
	}
}
