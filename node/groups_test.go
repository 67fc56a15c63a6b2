package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

// childEnv holds what a node in a process of its own needs.
const childEnv = "TOCSIN_TEST_CHILD"

// childBuries makes the child bury each task, if it is set.
const childBuries = "TOCSIN_TEST_CHILD_BURIES"

// child is a node that prints the biz_id of each task it gets.
type child struct {
	Tables    tocsin.Config
	Endpoints []string
	Group     string
	Handles   string
}

// childMain runs a node instead of the tests where this process was started as one.
func childMain() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var h node.Handlers
	node.Handle(&h, tocsin.Define[string](c.Handles), func(_ context.Context, task *tocsin.Task[string]) error {
		if early := time.Until(task.ActionTime); early > 0 {
			fmt.Println("early by", early)
		}
		fmt.Println(task.BizType, task.BizID)
		if os.Getenv(childBuries) != "" {
			return tocsin.Bury(errors.New("as asked"))
		}
		return nil
	})
	lease := 10 * time.Second
	if os.Getenv(childBuries) != "" { // it is killed, and others wait until its lease has ended
		lease = 2 * time.Second
	}
	n, err := node.New(node.Config{
		Tables: c.Tables, Etcd: node.EtcdConfig{Endpoints: c.Endpoints}, Group: c.Group, Name: "child", LeaseTTL: lease,
	}, &h)
	if err == nil {
		err = n.Run(ctx)
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// spawn starts a node in a process of its own, with further variables of the environment, and returns the lines it prints.
func spawn(t *testing.T, c child, env ...string) <-chan string {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), childEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if err := cmd.Wait(); err != nil {
			t.Errorf("node process: %v", err)
		}
	})
	return lines
}

func TestEachTaskReachesTheProcessThatHasItsHandler(t *testing.T) {
	t.Parallel()
	p := newPlace(t,
		biztype.Policy{Name: "order.close", Number: 1, Group: "orders"},
		biztype.Policy{Name: "refund.check", Number: 2, Group: "refunds"},
		biztype.Policy{Name: "nobody.home", Number: 3, Group: "ghosts"},
	)
	orders := spawn(t, child{p.cfg, p.etcd.Endpoints, "orders", "order.close"})
	refunds := spawn(t, child{p.cfg, p.etcd.Endpoints, "refunds", "refund.check"})
	ghost := add(t, p, tocsin.Define[string]("nobody.home").New(1, "", tocsin.In(0)))
	before, err := p.client.Get(t.Context(), ghost)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]bool{"order.close": {}, "refund.check": {}}
	for bizID := range uint64(40) {
		for name, lines := range want {
			add(t, p, tocsin.Define[string](name).New(bizID+1, "", tocsin.In(0)))
			lines[fmt.Sprint(name, " ", bizID+1)] = true
		}
	}
	expectLines(t, orders, want["order.close"])
	expectLines(t, refunds, want["refund.check"])
	if after, err := p.client.Get(t.Context(), ghost); err != nil || after != before {
		t.Errorf("the task without a live group changed from %+v to %+v (%v)", before, after, err)
	}
}

// expectLines wants each line once and no other.
func expectLines(t *testing.T, lines <-chan string, want map[string]bool) {
	t.Helper()
	for len(want) > 0 {
		line := receive(t, lines, "a delivery")
		if !want[line] {
			t.Fatalf("unexpected line %q", line)
		}
		delete(want, line)
	}
}
