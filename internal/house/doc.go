// Package house is the authority for the house rules of the modules in go.work: who may import whom, where SQL stands, what is
// documented, how long functions and files are. Its tests read every file of the module and fail with one line
// per violation, "internal/store/peek.go:12: ...".
//
//	rule       holds for
//	imports    the table of packages in imports.go, other modules' packages, the standard library's testing
//	sql        text that looks like a statement, and the comment in it that names the sender
//	docs       package comments, doc comments of exported names
//	sizes      functions, files
//	walls      how many packages, exported names and files at the top there are
//	names      packages and types without a noun of their own
//	sleep      time.Sleep outside tests
//	skips      tests that do not run everywhere: the list, with reasons
//	servers    tests that open a database: make test-sql runs them on further servers, or the list says why not
//	once       a walk over all tables beside store.Walk, an errgroup as a sync.WaitGroup
//	paths      paths of somebody's machine, in any text file
//	targets    `make x` in README, docs and scripts: x is a target of the Makefile
//	needs      what a program that imports Tocsin gets into its go.sum and go.mod
//
// Everything is parsed in this process, so that `go test` sees which files the result depends on and runs the
// tests again when one changes. A file that does not parse is an error of Load.
package house
