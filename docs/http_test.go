package docs_test

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/webhook"
)

// secretName is where nodes and receivers find the secret: see TestMain.
const secretName = "TOCSIN_COUPON_SECRET"

const couponSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// deliver sends a callback with a business key and headers as a node does.
func deliver(t *testing.T, url, payload string) error {
	t.Helper()
	task := coupon(1<<40+tocsin.JobID(len(payload)), payload)
	task.BizID, task.BizKey, task.Headers = tocsin.KeyID("cus_9fQ2"), "cus_9fQ2", `{"tenant":"shop-7"}`
	return send(t, url, task, couponSecret)
}

// fields lists the names in a JSON object, with those of its objects.
func fields(t *testing.T, text string) (names []string) {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names = append(names, name)
		if inner, ok := all[name].(map[string]any); ok {
			names = append(names, slices.Sorted(maps.Keys(inner))...)
		}
	}
	return names
}

// The page shows a request with the headers and fields of a real one.
func TestTheShownCallbackIsAsNodesSendIt(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		header, body = r.Header, string(text)
	}))
	defer s.Close()
	if err := deliver(t, s.URL, "{}"); err != nil {
		t.Fatal(err)
	}
	page := ofKind(t, blocks(t, "http.md"), "")[0].text
	head, shown, _ := strings.Cut(page, "\n\n")
	if got, want := fields(t, shown), fields(t, body); !slices.Equal(got, want) {
		t.Errorf("the page shows the fields %q, a node sends %q", got, want)
	}
	var names []string
	for _, line := range strings.Split(head, "\n")[1:] {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, http.CanonicalHeaderKey(name))
	}
	slices.Sort(names)
	for _, transport := range []string{"Accept-Encoding", "Content-Length"} {
		header.Del(transport)
	}
	if want := slices.Sorted(maps.Keys(header)); !slices.Equal(names, want) {
		t.Errorf("the page shows the headers %q, a node sends %q", names, want)
	}
}

// awaitListener waits until somebody listens.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody listens: %v", err)
		}
	}
}

func TestTheShownReceiverTakesCallbacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "receiver")
	write(t, file, ofKind(t, blocks(t, "http.md"), "go receiver")[0].text)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := devtest.FreeAddress()
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), secretName+"="+couponSecret, "LISTEN="+address)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	}()
	awaitListener(t, address)
	for payload, want := range map[string]tocsin.Verb{"SPRING": tocsin.Completed, "": tocsin.Buried, "busy": tocsin.Retried} {
		verb, in, reason := tocsin.AsOutcome(deliver(t, "http://"+address+"/hooks/remind", payload))
		if verb != want || verb == tocsin.Retried && in != time.Minute {
			t.Errorf("%q: %s in %s: %s, want %s", payload, verb, in, reason, want)
		}
	}
}

// The shown answer to the shown batch does what the page says, and the shown request has the fields of a real one.
func TestTheShownBatchIsAsNodesSendIt(t *testing.T) {
	t.Parallel()
	type batch struct {
		Data []map[string]any `json:"data"`
	}
	_, shown, _ := strings.Cut(ofKind(t, blocks(t, "http.md"), "batch request")[0].text, "\n\n")
	var page, real batch
	if err := json.Unmarshal([]byte(shown), &page); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&real); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, ofKind(t, blocks(t, "http.md"), "json batch answer")[0].text)
	}))
	defer s.Close()
	sink, err := webhook.NewSink(webhook.SinkConfig{URL: s.URL, Secrets: []string{couponSecret}, Allow: []string{"127.0.0.0/8"}, Batch: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	var tasks []tocsin.Info
	for i := range page.Data {
		tasks = append(tasks, tocsin.Info{JobID: tocsin.JobID(117904638606316173 + 512*i), Version: []uint32{0, 0, 2}[i], BizID: 4711, BizType: "coupon.remind", ActionTime: time.Now(), DueTime: time.Now()})
	}
	errs := sink.Deliver(t.Context(), tasks)
	for i, want := range []tocsin.Verb{tocsin.Completed, tocsin.Retried, tocsin.Buried} {
		verb, in, reason := tocsin.AsOutcome(errs[i])
		if verb != want || verb == tocsin.Retried && in != time.Minute {
			t.Errorf("task %d: %s in %s: %s, want %s", i, verb, in, reason, want)
		}
		if got, want := slices.Sorted(maps.Keys(page.Data[i])), slices.Sorted(maps.Keys(real.Data[i])); !slices.Equal(got, want) || page.Data[i]["key"] != real.Data[i]["key"] {
			t.Errorf("the page shows %q, a node sends %q", got, want)
		}
	}
}
