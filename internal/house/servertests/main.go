// Command servertests tells the Makefile what internal/house knows of the tests: which packages run on a database
// server, and what does not run. It reads the module in the current folder and runs nothing.
//
//	servertests packages    the packages whose tests need a database server, for go test
//	servertests left-out    what make test does not run, and why
//	servertests left-out-of-sql   the same of make test-sql
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tocsinhq/tocsin/internal/house"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "servertests:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch strings.Join(args, " ") {
	case "packages":
		return packages(out)
	case "left-out":
		leftOut(out, house.NotRun(false))
	case "left-out-of-sql":
		leftOut(out, house.NotRun(true))
	default:
		return fmt.Errorf("want packages, left-out or left-out-of-sql, not %q", args)
	}
	return nil
}

func packages(out io.Writer) error {
	m, err := house.Load(".")
	if err != nil {
		return err
	}
	for _, dir := range house.Databases(m) {
		fmt.Fprintln(out, "./"+dir)
	}
	return nil
}

func leftOut(out io.Writer, lines []string) {
	server := os.Getenv("TOCSIN_TEST_SERVER")
	if server == "" {
		server = "this machine's server"
	}
	fmt.Fprintf(out, "not run on %s:\n", server)
	for _, line := range lines {
		fmt.Fprintln(out, "  "+line)
	}
}
