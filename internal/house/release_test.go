package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a git repository of the files that a release changes.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	for _, name := range []string{"go.mod", "cmd/tocsin/go.mod", "contrib/tocsinpg/go.mod", "contrib/tocsinotel/go.mod", "contrib/tocsinkafka/go.mod", "contrib/tocsinrabbitmq/go.mod", "contrib/tocsinnats/go.mod", "api/go.mod", "scripts/release.sh"} {
		body, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, body, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"init -q", "add .", "commit -qm all"} {
		if out, err := r.run("git", strings.Fields(args)...); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	return r
}

// run returns the output of a program in the repository, whose git reads no config of this machine.
func (r repository) run(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r repository) git(args ...string) string {
	r.t.Helper()
	out, err := r.run("git", args...)
	if err != nil {
		r.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// `go install cmd/tocsin@version` refuses a go.mod with a replace directive.
func TestAReleasedCommandRequiresTheLibraryByItsVersion(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	out, err := r.run("scripts/release.sh", "v1.2.3")
	if err != nil || out != "git push origin v1.2.3 contrib/tocsinpg/v1.2.3 contrib/tocsinotel/v1.2.3 contrib/tocsinkafka/v1.2.3 contrib/tocsinrabbitmq/v1.2.3 contrib/tocsinnats/v1.2.3 api/v1.2.3 cmd/tocsin/v1.2.3\n" {
		t.Fatalf("%v: %s", err, out)
	}
	for module, needs := range map[string][]string{"contrib/tocsinpg": {""}, "contrib/tocsinotel": {""}, "contrib/tocsinkafka": {""}, "contrib/tocsinrabbitmq": {""}, "contrib/tocsinnats": {""}, "api": {""}, "cmd/tocsin": {"", "/contrib/tocsinpg", "/contrib/tocsinkafka", "/contrib/tocsinrabbitmq", "/contrib/tocsinnats", "/api"}} {
		released := r.git("show", module+"/v1.2.3:"+module+"/go.mod")
		for _, need := range needs {
			if !strings.Contains(released, "\t"+modulePath+need+" v1.2.3\n") || strings.Contains(released, "replace") {
				t.Errorf("the released go.mod of %s:\n%s", module, released)
			}
		}
	}
	if head, tag := r.git("rev-parse", "HEAD"), r.git("rev-parse", "v1.2.3"); head != tag {
		t.Errorf("the library's tag is of %s, HEAD is %s", tag, head)
	}
	if left := r.git("status", "--porcelain") + r.git("worktree", "list"); strings.Count(left, "\n") != 1 {
		t.Errorf("left %s", left)
	}
	for version, want := range map[string]string{"v1.2.3": "there is a tag v1.2.3 already", "1.2": "want a version such as v1.2.3, not '1.2'"} {
		if out, err := r.run("scripts/release.sh", version); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %s", version, err, out)
		}
	}
}
