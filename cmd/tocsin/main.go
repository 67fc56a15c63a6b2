// Command tocsin is the operator's side of Tocsin: it runs nodes and sweepers,
// makes and checks the tables, applies biz types, and looks at, cancels and
// redrives tasks.
//
// It wires the packages together and holds no logic of its own. Every command
// takes --config and --json, says what went wrong in one line, and exits with 0
// if all went well, 1 if something failed, 2 if it was called wrongly.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc/grpclog"
)

// version is set when the program is built.
var version = "dev"

func main() {
	quietGRPC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// quietGRPC keeps the etcd client's transport, which writes to stderr by itself,
// from mixing with our one line an error: what it says reaches us as errors too.
func quietGRPC() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	cmd := newRoot(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if text := oneLine(err); text != "" {
		fmt.Fprintln(printed{stderr}, "tocsin: "+text)
	}
	return codeOf(err)
}
