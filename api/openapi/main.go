// Command openapi prints the description of the HTTP API, OpenAPI 3.1 in YAML, as the code has it: `make openapi` writes it into
// api/openapi.yaml.
package main

import (
	"fmt"
	"os"

	"github.com/tocsinhq/tocsin/api"
)

func main() {
	text, err := api.New(api.Config{}).OpenAPI()
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(text)
}
