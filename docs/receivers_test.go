package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/tocsintest"
	"github.com/tocsinhq/tocsin/webhook"
)

// The receivers of docs/http.md.
var (
	phpReceiver    = language{"php receiver.php", php.interpreter, php.check, nil, php.debian, "test"}
	pythonReceiver = language{"python receiver.py", python.interpreter, []string{"--version"}, nil, "python3", "test"}
	nodeReceiver   = language{"js receiver.js", [][]string{{"node"}, {"/usr/bin/node"}}, []string{"--version"}, nil, "nodejs", "test"}
	javaReceiver   = language{"java Receiver.java", [][]string{{"java", "-cp", jdbc + ":" + gson}}, java.check, []string{jdbc, gson},
		"default-jdk-headless, libmariadb-java and libgoogle-gson-java", "test-java"}
)

// receiver is a program of the document that takes callbacks.
type receiver struct {
	url  string
	done func() []string // what its tasks have done, each as "4711: Use SPRING today"
}

// starts makes a receiver that has a secret.
type starts = func(t *testing.T, secret string) receiver

// each runs a test with receivers.
func each(t *testing.T, of map[string]starts, do func(*testing.T, starts)) {
	t.Parallel()
	for name, start := range of {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, start)
		})
	}
}

// receivers are those of make test: that in Java is apart.
var receivers = map[string]starts{"PHP": startPHP, "Node": startNode, "Python": startPython}

func TestReceiversTakeCallbacks(t *testing.T)        { each(t, receivers, takesCallbacks) }
func TestReceiversRefuseWhatNoNodeSent(t *testing.T) { each(t, receivers, refusesForgeries) }
func TestReceiversServeANode(t *testing.T)           { each(t, receivers, servesANode) }

// That in Node does not even start.
func TestReceiversWithoutASecretRefuseAll(t *testing.T) {
	each(t, map[string]starts{"PHP": startPHP, "Python": startPython}, refusesAll)
}

func TestJavaReceiver(t *testing.T) {
	onlyJava(t)
	for name, do := range map[string]func(*testing.T, starts){"takes callbacks": takesCallbacks, "refuses what no node sent": refusesForgeries, "serves a node": servesANode} {
		t.Run(name, func(t *testing.T) { do(t, startJava) })
	}
}

// Two requests with one key at the same time do the work once, and both are answered when it is done.
func TestPythonReceiverDoesTheWorkOfConcurrentReplaysOnce(t *testing.T) {
	t.Parallel()
	r := startPython(t, couponSecret)
	real := capture(t, coupon(7<<40, `{"coupon":"once"}`))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := real.status(t, r.url); got != 204 {
				t.Errorf("%d", got)
			}
		})
	}
	all.Wait()
	if got := r.done(); !slices.Equal(got, []string{"4711: Use once today"}) {
		t.Errorf("done is %q", got)
	}
}

// coupon is a task of the type that the receivers take.
func coupon(id tocsin.JobID, payload string) tocsin.Info {
	now := time.Now()
	return tocsin.Info{JobID: id, BizID: 4711, BizType: "coupon.remind", ActionTime: now, DueTime: now, Payload: payload}
}

// send delivers a task as a node does, signed with the secrets.
func send(t *testing.T, url string, task tocsin.Info, secrets ...string) error {
	t.Helper()
	s, err := webhook.NewSink(webhook.SinkConfig{URL: url, Secrets: secrets, Node: "host-1", Allow: []string{"127.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Deliver(t.Context(), []tocsin.Info{task})[0]
}

// other is a secret that no receiver has.
const other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

// takesCallbacks wants the outcomes that the document names, and the work done once for each key.
func takesCallbacks(t *testing.T, start starts) {
	r := start(t, couponSecret)
	again := coupon(1<<40, `{"coupon":"春 🔔 \"é\""}`)
	redriven := again
	redriven.Version++
	for _, c := range []struct {
		what    string
		task    tocsin.Info
		secrets []string
		verb    tocsin.Verb
		in      time.Duration
		reason  string
	}{
		{"a task", again, []string{couponSecret}, tocsin.Completed, 0, ""},
		{"the same key again", again, []string{couponSecret}, tocsin.Completed, 0, ""},
		{"the task redriven, so with another key", redriven, []string{couponSecret}, tocsin.Completed, 0, ""},
		{"signed with two secrets", coupon(2<<40, `{"coupon":"SUMMER"}`), []string{other, couponSecret}, tocsin.Completed, 0, ""},
		{"busy", coupon(3<<40, `{"coupon":"busy"}`), []string{couponSecret}, tocsin.Retried, time.Minute, "500 Internal Server Error: the mail server is busy"},
		{"no coupon", coupon(4<<40, `{}`), []string{couponSecret}, tocsin.Buried, 0, "410 Gone: no coupon"},
		{"a payload that is no JSON", coupon(5<<40, "{"), []string{couponSecret}, tocsin.Retried, -1, "500 Internal Server Error: failed"},
		{"another secret", coupon(6<<40, `{"coupon":"FORGED"}`), []string{other}, tocsin.Retried, -1, "401 Unauthorized: the signature is wrong"},
	} {
		verb, in, reason := tocsin.AsOutcome(send(t, r.url, c.task, c.secrets...))
		if verb != c.verb || in != c.in || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %s in %s: %s; want %s in %s: %s", c.what, verb, in, reason, c.verb, c.in, c.reason)
		}
	}
	want := []string{`4711: Use SUMMER today`, `4711: Use 春 🔔 "é" today`, `4711: Use 春 🔔 "é" today`}
	if got := r.done(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("done is %q, want %q", got, want)
	}
}

// captured is a callback as a node has sent it.
type captured struct {
	header http.Header
	body   string
}

func capture(t *testing.T, task tocsin.Info) (c captured) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		c = captured{r.Header.Clone(), string(text)}
	}))
	defer s.Close()
	if err := send(t, s.URL, task, couponSecret); err != nil {
		t.Fatal(err)
	}
	return c
}

// sentAt gives the callback another time, rightly signed.
func (c captured) sentAt(t *testing.T, at time.Time) captured {
	t.Helper()
	w, err := standard.NewWebhook(couponSecret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := w.Sign(c.header.Get(standard.HeaderWebhookID), at, []byte(c.body))
	if err != nil {
		t.Fatal(err)
	}
	return c.with(standard.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10)).with(standard.HeaderWebhookSignature, signature)
}

// with replaces a header; "" removes it.
func (c captured) with(name, value string) captured {
	c.header = c.header.Clone()
	c.header.Del(name)
	if value != "" {
		c.header.Set(name, value)
	}
	return c
}

// status sends the callback, and returns how the receiver answers.
func (c captured) status(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode
}

// refusesForgeries changes a callback on its way. Only what is unchanged may do anything.
func refusesForgeries(t *testing.T, start starts) {
	r := start(t, couponSecret)
	real := capture(t, coupon(7<<40, `{"coupon":"春"}`))
	changed := real
	changed.body = strings.Replace(real.body, `"4711"`, `"4712"`, 1)
	now := time.Now()
	for _, c := range []struct {
		what     string
		callback captured
		want     int
	}{
		{"another body", changed, 401},
		{"another key", real.with(standard.HeaderWebhookID, "1.0"), 401},
		{"another time", real.with(standard.HeaderWebhookTimestamp, strconv.FormatInt(now.Add(-time.Second*9).Unix(), 10)), 401},
		{"no key", real.with(standard.HeaderWebhookID, ""), 401},
		{"no time", real.with(standard.HeaderWebhookTimestamp, ""), 401},
		{"a time that is no number", real.with(standard.HeaderWebhookTimestamp, "now"), 401},
		{"no signature", real.with(standard.HeaderWebhookSignature, ""), 401},
		{"an empty signature", real.with(standard.HeaderWebhookSignature, "v1,"), 401},
		{"sent six minutes ago", real.sentAt(t, now.Add(-6*time.Minute)), 401},
		{"sent in six minutes", real.sentAt(t, now.Add(6*time.Minute)), 401},
		{"sent three minutes ago", real.sentAt(t, now.Add(-3*time.Minute)), 204},
		{"as it was sent", real, 204},
	} {
		if got := c.callback.status(t, r.url); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if got, want := r.done(), []string{"4711: Use 春 today"}; !slices.Equal(got, want) {
		t.Errorf("done is %q, want %q", got, want)
	}
}

// servesANode has a real node deliver tasks. The busy one has its second and last attempt after a minute, as
// Retry-After asks for, and not after the policy's second.
func servesANode(t *testing.T, start starts) {
	r := start(t, couponSecret)
	second := []biztype.Duration{biztype.Duration(time.Second)}
	hook := &biztype.Webhook{URL: r.url, Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"}}
	c := tocsintest.StartWith(t, biztype.Policy{Name: "coupon.remind", Number: 2, Group: tocsintest.Group, Webhook: hook, Attempts: 2, Ladder: second})
	type payload struct {
		Coupon string `json:"coupon"`
	}
	remind := tocsin.Define[payload]("coupon.remind")
	for _, code := range []string{"春 🔔", "busy", ""} {
		if _, err := c.Client.Add(t.Context(), remind.New(4711, payload{code}, tocsin.In(0))); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, until := range []time.Duration{30 * time.Second, 90 * time.Second} {
		for _, d := range nodetest.RunDue(t, c, nil, time.Now().Add(until)) {
			got = append(got, fmt.Sprintf("%s %s within %s", d.Task.Payload, d.Outcome.Verb, until))
		}
	}
	slices.Sort(got)
	want := []string{`{"coupon":""} bury within 30s`, `{"coupon":"busy"} bury within 1m30s`, `{"coupon":"busy"} retry within 30s`, `{"coupon":"春 🔔"} complete within 30s`}
	if !slices.Equal(got, want) {
		t.Errorf("deliveries %q, want %q", got, want)
	}
	if got, want := r.done(), []string{"4711: Use 春 🔔 today"}; !slices.Equal(got, want) {
		t.Errorf("done is %q, want %q", got, want)
	}
}

// refusesAll has no secret.
func refusesAll(t *testing.T, start starts) {
	r := start(t, "")
	real := capture(t, coupon(7<<40, `{"coupon":"x"}`))
	if got := real.status(t, r.url); got != 500 || len(r.done()) != 0 {
		t.Errorf("%d, want 500; %q", got, r.done())
	}
}

// startPHP serves the program with PHP's own server. It shows errors, as on a developer's machine.
func startPHP(t *testing.T, secret string) receiver {
	t.Helper()
	p, program := mails(t, phpReceiver)
	address := devtest.FreeAddress()
	program.command = slices.Insert(program.command, len(program.command)-1, "-d", "display_errors=1", "-S", address)
	program.serve(secret, address)
	return receiver{"http://" + address + "/hooks/remind", p.mails(t)}
}

func startJava(t *testing.T, secret string) receiver {
	t.Helper()
	p, program := mails(t, javaReceiver)
	address := devtest.FreeAddress()
	program.serve(secret, address)
	return receiver{"http://" + address + "/hooks/remind", p.mails(t)}
}

func startNode(t *testing.T, secret string) receiver { return startPrinting(t, nodeReceiver, secret) }
func startPython(t *testing.T, secret string) receiver {
	return startPrinting(t, pythonReceiver, secret)
}

// startPrinting has a receiver that does its work by printing it.
func startPrinting(t *testing.T, l language, secret string) receiver {
	t.Helper()
	program := l.write(t, ofKind(t, blocks(t, "http.md"), l.kind)[0].text)
	address := devtest.FreeAddress()
	printed := program.serve(secret, address)
	return receiver{"http://" + address + "/hooks/remind", func() []string {
		text := read(t, printed)
		return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	}}
}

// mails makes the tables of a receiver, and its program.
func mails(t *testing.T, l language) (*place, *program) {
	t.Helper()
	p := newPlace(t)
	all := blocks(t, "http.md")
	for statement := range strings.SplitSeq(ofKind(t, all, "sql receivers")[0].text, ";\n") {
		if strings.TrimSpace(statement) != "" {
			p.exec(t, p.rename.Replace(statement))
		}
	}
	return p, l.write(t, p.rename.Replace(ofKind(t, all, l.kind)[0].text))
}

// mails reads what the work of a receiver has written.
func (p *place) mails(t *testing.T) func() []string {
	return func() (all []string) {
		t.Helper()
		if err := p.db.SelectContext(t.Context(), &all, "SELECT CONCAT(biz_id, ': ', text) FROM "+p.layout.Prefix+"_shop.mails"); err != nil {
			t.Fatal(err)
		}
		return all
	}
}

// serve runs the program until the test ends, and returns when it listens. The file gets what it prints.
func (p *program) serve(secret, address string) (printed string) {
	p.t.Helper()
	printed = filepath.Join(p.t.TempDir(), "stdout")
	stdout, err := os.Create(printed)
	if err != nil {
		p.t.Fatal(err)
	}
	run := exec.CommandContext(context.WithoutCancel(p.t.Context()), p.command[0], p.command[1:]...)
	run.Env = append(append(os.Environ(), p.env...), secretName+"="+secret, "LISTEN="+address)
	var stderr bytes.Buffer
	run.Stdout, run.Stderr = stdout, &stderr
	if err := run.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
		_ = stdout.Close()
		if p.t.Failed() {
			p.t.Logf("the receiver wrote\n%s", &stderr)
		}
	})
	awaitListener(p.t, address)
	return printed
}
