package api_test

import (
	"flag"
	"os"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tocsinhq/tocsin/api"
)

const openAPIFile = "openapi.yaml"

var update = flag.Bool("update", false, "write openapi.yaml before it is compared")

func TestOpenAPIIsThatOfTheCode(t *testing.T) {
	t.Parallel()
	a := api.New(api.Config{})
	want, err := a.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(openAPIFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(openAPIFile); err != nil || string(got) != string(want) {
		t.Errorf("%v: openapi.yaml differs from the code: run `make openapi`", err)
	}
}

func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Paths.Len() < 10 {
		t.Errorf("OpenAPI %s with %d paths", doc.OpenAPI, doc.Paths.Len())
	}
}
