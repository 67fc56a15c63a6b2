package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// verdict is what testdata/standardwebhooks/verify.js prints.
type verdict struct {
	Callback struct {
		Data struct {
			Payload string `json:"attribute"`
		} `json:"data"`
	} `json:"callback"`
	Refused string `json:"refused"`
}

// onlyNpm ends a test that needs packages of npm, except in make test-node, and returns their folder.
func onlyNpm(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("TOCSIN_TEST_NPM")
	if folder == "" {
		t.Skip("verifies callbacks with a package of npm: make test-node")
	}
	return folder
}

// byNpm has the package standardwebhooks verify a callback.
func byNpm(t *testing.T, folder string, c captured) (v verdict) {
	t.Helper()
	headers := map[string]string{}
	for name := range c.header {
		headers[strings.ToLower(name)] = c.header.Get(name)
	}
	input, err := json.Marshal(map[string]any{"secret": couponSecret, "body": c.body, "headers": headers})
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/standardwebhooks/verify.js")
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "node", script)
	run.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(folder, "node_modules"))
	run.Stdin = strings.NewReader(string(input))
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return v
}

func TestTheNpmPackageStandardwebhooksVerifiesCallbacks(t *testing.T) {
	t.Parallel()
	folder := onlyNpm(t)
	payload := `{"coupon":"春 🔔"}`
	real := capture(t, coupon(8<<40, payload))
	if got := byNpm(t, folder, real); got.Callback.Data.Payload != payload || got.Refused != "" {
		t.Errorf("what a node has sent: %+v", got)
	}
	changed := real
	changed.body = strings.Replace(real.body, `"4711"`, `"4712"`, 1)
	for what, c := range map[string]struct {
		callback captured
		want     string
	}{
		"another body":         {changed, "No matching signature found"},
		"sent six minutes ago": {real.sentAt(t, time.Now().Add(-6*time.Minute)), "Message timestamp too old"},
	} {
		if got := byNpm(t, folder, c.callback); got.Refused != c.want {
			t.Errorf("%s: %+v, want %q", what, got, c.want)
		}
	}
}
