package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the program and of the schema it expects", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Schema  int    `json:"schema"`
				Go      string `json:"go"`
			}{version, layoutrow.SchemaVersion, runtime.Version()}
			return a.print(v, func(w io.Writer) { fmt.Fprintf(w, "tocsin %s, schema %d, %s\n", v.Version, v.Schema, v.Go) })
		},
	}
}
