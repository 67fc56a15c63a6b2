package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// shellBlock is a block of docs/api.md that is to be pasted: its name and its text.
var shellBlock = regexp.MustCompile("(?ms)^```sh ([a-z]+)\n(.*?)^```")

// reader is somebody who pastes blocks of docs/api.md into terminals, in one folder.
type apiReader struct {
	*site
	blocks map[string]string
}

func newAPIReader(t *testing.T) *apiReader {
	t.Helper()
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	ports := strings.NewReplacer("127.0.0.1:8000", devtest.FreeAddress(), "127.0.0.1:8481", devtest.FreeAddress())
	page := ports.Replace(string(text))
	receiver := regexp.MustCompile(`url: "http://127\.0\.0\.1:(\d+)/`).FindStringSubmatch(page)
	page = strings.ReplaceAll(page, `("127.0.0.1", 8000)`, `("127.0.0.1", `+receiver[1]+`)`)
	r := &apiReader{&site{t: t, dir: t.TempDir()}, map[string]string{}}
	for _, b := range shellBlock.FindAllStringSubmatch(page, -1) {
		r.blocks[b[1]] = b[2]
	}
	if err := os.Mkdir(filepath.Join(r.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	tocsin := fmt.Sprintf("#!/bin/sh\n%s=1 TOCSIN_CONFIG= exec %s \"$@\"\n", asCommand, os.Args[0])
	if err := os.WriteFile(filepath.Join(r.dir, "bin/tocsin"), []byte(tocsin), 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *apiReader) shell(block string) *exec.Cmd {
	r.t.Helper()
	if r.blocks[block] == "" {
		r.t.Fatalf("docs/api.md has no block %q", block)
	}
	cmd := exec.Command("sh", "-c", r.blocks[block])
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// terminal pastes a block that stays, and ends it with the test.
func (r *apiReader) terminal(block string) *output {
	r.t.Helper()
	cmd, out := r.shell(block), &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		if r.t.Failed() {
			r.t.Logf("terminal %s:\n%s", block, out)
		}
	})
	return out
}

// paste pastes a block that ends.
func (r *apiReader) paste(block string) string {
	r.t.Helper()
	out, err := r.shell(block).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", block, err, out)
	}
	return string(out)
}

// The steps of docs/api.md lead from nothing to a delivered task.
func TestTheStepsOfTheAPIsPageCanBePasted(t *testing.T) {
	t.Parallel()
	r := newAPIReader(t)
	r.terminal("cluster")
	r.waitWithin(upWithin, "the cluster is up", func() bool { _, err := os.Stat(filepath.Join(r.dir, "tocsin.yaml")); return err == nil })
	node := r.terminal("node")
	r.waitFor("the API listens", func() bool { return strings.Contains(node.String(), "the API listens") })
	added := r.paste("add")
	id := regexp.MustCompile(`"job_id":"(\d+)","status":"pending","existing":false`).FindStringSubmatch(added)
	if id == nil {
		t.Fatalf("added %s", added)
	}
	r.waitFor("the receiver has the task", func() bool {
		return strings.Contains(node.String(), "received ") && strings.Contains(node.String(), id[1]) && strings.Contains(node.String(), `{\"order\":42}`)
	})
	r.waitFor("the task is done", func() bool { return strings.Contains(r.paste("list"), `"status":"done"`) })
	if out := r.paste("schedule"); !strings.Contains(out, `"state":"active"`) {
		t.Errorf("created %s", out)
	}
	r.waitFor("the receiver has a run", func() bool { return strings.Contains(node.String(), `{\"check\":true}`) })
	r.waitFor("the history has a run", func() bool { return strings.Contains(r.paste("runs"), `"outcome":"completed"`) })
	if out := r.paste("change"); !strings.Contains(out, `{"field":"cron","old":"@every 2s","new":"0 4 * * *"}`) {
		t.Errorf("changed %s", out)
	}
	if out := r.paste("stop"); !strings.Contains(out, `"state":"inactive"`) || strings.Contains(out, `"status"`) {
		t.Errorf("stopped %s", out)
	}
	if out := r.paste("token"); !strings.Contains(out, "toc_") || !strings.Contains(out, "scope: write") {
		t.Errorf("the token is\n%s", out)
	}
}
