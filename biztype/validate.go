package biztype

import (
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/yamlfile"
)

// Bounds of a policy.
const (
	maxTimeout     = time.Hour
	maxAttempts    = 1000
	maxConcurrency = 10000
	maxPerKey      = 1000
	maxRate        = 1e6
	maxWait        = 30 * 24 * time.Hour
	maxLadder      = 64
	maxRetention   = 10 * 365 * 24 * time.Hour
	maxURL         = 2048
	maxTopic       = 255
	maxSecrets     = 2 // one in use and one for rotation
	maxAllow       = 64
	maxBatch       = 1000
	minLease       = 5 * time.Second
	maxLease       = time.Minute
)

var (
	secretForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	topicForm  = regexp.MustCompile(`^([A-Za-z0-9._-]|\{biz_type\}|\{header\.[^{}]+\})*$`)
	numberForm = regexp.MustCompile(`^([0-9]+|0[xX][0-9A-Fa-f]*)$`)
	keyForm    = regexp.MustCompile(`^(biz_key|job_id|none|header\..+)?$`)
)

// Validate reports all that is wrong with the policies, one line each. It asks
// no server: whether a number is taken shows when they are applied. A policy with an
// Edition, as code brings them, needs no number.
func Validate(policies []Policy) error {
	found := faults(policies)
	return found.Err()
}

func label(p Policy) string {
	if p.Name == "" {
		return fmt.Sprintf("#%d", p.Number)
	}
	return name.Shown(p.Name)
}

// faults finds all that is wrong with the policies of a file.
func faults(policies []Policy) (all yamlfile.Faults) {
	names, numbers := map[string]bool{}, map[uint64]string{}
	targets, chained := byName(policies), map[string]bool{}
	for i, p := range policies {
		c := check{yamlfile.Faults{Within: fmt.Sprintf("biz_types[%d].", i), Of: "biz type " + label(p)}}
		c.policy(p)
		c.Refuse(names[p.Name], "name", "the name stands twice")
		if other, taken := numbers[p.Number]; taken && p.Number != 0 {
			c.Refuse(true, "number", "number %d is that of %s too", p.Number, name.Shown(other))
		}
		names[p.Name], numbers[p.Number] = true, p.Name
		if p.Alarm != nil {
			if to, there := targets[p.Alarm.To]; there && !chained[to.Name] { // a cycle is one mistake
				before := len(c.Found)
				c.alarmTarget(p, to)
				chained[p.Name] = len(c.Found) > before
			}
		}
		all.Found = append(all.Found, c.Found...)
	}
	return all
}

// check collects what is wrong with one policy.
type check struct{ yamlfile.Faults }

func (c *check) policy(p Policy) {
	c.Note("name", name.CheckLower("name", p.Name))
	c.Refuse(p.Edition < 0, "edition", "edition %d: use 1 or more", p.Edition)
	c.Refuse(p.Number == 0 && p.Edition == 0, "number", "needs a number, at least 1 and never used before")
	c.Refuse(p.Number > math.MaxInt64, "number", "number %d: at most %d", p.Number, uint64(math.MaxInt64))
	c.target(p)
	c.between("timeout", p.Timeout, time.Millisecond, maxTimeout)
	c.between("retention", p.Retention, time.Second, maxRetention)
	c.Refuse(p.Attempts < 0 || p.Attempts > maxAttempts, "attempts", "%d attempts: use 1 to %d", p.Attempts, maxAttempts)
	c.Refuse(p.Concurrency < 0 || p.Concurrency > maxConcurrency, "concurrency", "concurrency %d: use 1 to %d", p.Concurrency, maxConcurrency)
	c.Refuse(!slices.Contains([]tocsin.Priority{"", tocsin.High, tocsin.Normal, tocsin.Low}, p.Priority), "priority", "priority %q: use high, normal or low", p.Priority)
	c.Refuse(p.PerKey < 0 || p.PerKey > maxPerKey, "per_key", "per_key %d: use 1 to %d, or 0 for no limit", p.PerKey, maxPerKey)
	c.Refuse(p.PerKey > 0 && !p.Strict, "per_key", "per_key needs strict: true, as a cancel would let the next task begin beside the one in delivery")
	c.Refuse(!(p.Rate >= 0 && p.Rate <= maxRate), "rate", "rate %.15g: use 0 (no limit) to %.15g a second", p.Rate, maxRate)
	c.waits(p)
	c.alarm(p)
}

// target checks the group, and where the tasks go: nodes of any group can deliver to webhooks and sinks, but those of
// the group "callback" have no Go handlers.
func (c *check) target(p Policy) {
	switch {
	case p.Handled() && p.Group == "":
		c.Refuse(true, "group", "needs a webhook, a sink or pull, or the group of the nodes that have its Go handler")
	case p.Handled() && p.Group == CallbackGroup:
		c.Refuse(true, "group", "group %q has no Go handlers: give the type a webhook, a sink, pull or another group", CallbackGroup)
	case p.Group != "":
		c.Note("group", name.Check("group", p.Group))
	}
	c.Refuse(p.Webhook != nil && p.Sink != nil, "sink", "has both a webhook and a sink: use one, or make the other its fallback")
	c.links("", p.Webhook, p.Sink)
	c.pull(p)
	if f := p.Fallback; f != nil {
		c.Refuse(p.Handled(), "fallback", "a fallback is for a webhook or a sink, and this biz type has a Go handler")
		c.Refuse((f.Webhook == nil) == (f.Sink == nil), "fallback", "the fallback needs a webhook or a sink, and not both")
		c.between("fallback.after", f.After, time.Second, maxTimeout)
		c.links("fallback.", f.Webhook, f.Sink)
	}
}

// pull checks that nothing else stands beside pull which says how tasks are delivered: workers decide that.
func (c *check) pull(p Policy) {
	if p.Pull == nil {
		return
	}
	c.between("pull.lease", p.Pull.Lease, minLease, maxLease)
	for key, given := range map[string]bool{
		"webhook": p.Webhook != nil, "sink": p.Sink != nil, "fallback": p.Fallback != nil, "timeout": p.Timeout != 0, "concurrency": p.Concurrency != 0, "per_key": p.PerKey != 0,
	} {
		c.Refuse(given, key, "has both pull and %s: leave %s out, as workers ask for the tasks", key, key)
	}
}

// links checks the webhook and the sink that stand under a key.
func (c *check) links(under string, w *Webhook, s *Sink) {
	if w != nil {
		c.webhook(under+"webhook", *w)
	}
	if s != nil {
		c.sink(under+"sink", *s)
	}
}

func (c *check) sink(key string, s Sink) {
	if c.Refuse(s.Name == "", key, "the sink needs the name of one in the config of the nodes"); s.Name != "" {
		c.Note(key+".name", name.Check("sink", s.Name))
	}
	c.Refuse(len(s.Topic) > maxTopic, key+".topic", "the topic has %d bytes, more than %d", len(s.Topic), maxTopic)
	c.Refuse(!topicForm.MatchString(s.Topic), key+".topic", "topic %q: use letters, digits, . _ - and the placeholders {biz_type} and {header.NAME}", s.Topic)
	c.Refuse(!keyForm.MatchString(s.Key), key+".key", "key %q: use biz_key, job_id, header.NAME or none", s.Key)
	c.Refuse(s.Format != "" && s.Format != tocsin.FormatWebhook, key+".format", "format %q: use %s, or leave it out for CloudEvents", s.Format, tocsin.FormatWebhook)
}

func (c *check) webhook(key string, w Webhook) {
	c.url(key+".url", w.URL)
	c.Refuse(len(w.Secrets) > maxSecrets, key+".secrets", "%d secrets: at most %d, the one in use and one for rotation", len(w.Secrets), maxSecrets)
	for _, s := range w.Secrets {
		// The value is not repeated: it may be the secret itself.
		c.Refuse(strings.HasPrefix(s, "whsec_") || !secretForm.MatchString(s), key+".secrets", "a secret is given by the name of its environment variable, never by its value")
	}
	c.Refuse(len(w.Allow) > maxAllow, key+".allow", "%d networks: at most %d", len(w.Allow), maxAllow)
	for _, a := range w.Allow {
		_, err := netip.ParsePrefix(a)
		c.Refuse(err != nil, key+".allow", "%q is not a network such as 10.0.0.0/8", a)
	}
	c.Refuse(w.Batch < 0 || w.Batch > maxBatch, key+".batch", "batch %d: use 1 to %d, or 0 for a request for each task", w.Batch, maxBatch)
}

func (c *check) url(key, text string) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		c.Refuse(true, key, "the webhook needs a url")
	case len(text) > maxURL:
		c.Refuse(true, key, "the url has %d bytes, more than %d", len(text), maxURL)
	case err == nil && badHost(u.Hostname()):
		c.Refuse(true, key, "the url's host %s is no IP address: it has four numbers of 0 to 255, without leading zeros", u.Hostname())
	case err == nil && badPort(u.Port()):
		c.Refuse(true, key, "the url's port is %s: use 1 to 65535", u.Port())
	case err != nil, u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https":
		c.Refuse(true, key, "the url is not of the form http://host/path or https://host/path")
	case u.User != nil:
		c.Refuse(true, key, "the url holds a user name or password: deliveries are signed instead, see secrets")
	case u.Fragment != "":
		c.Refuse(true, key, "the url has a #fragment, which is never sent")
	}
}

// badHost reports whether a host ends in a number, as no name does by the URL standard of WHATWG, and is not an IPv4 address. An IPv6 address has colons, and
// url.Parse has judged it.
func badHost(host string) bool {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	_, err := netip.ParseAddr(host)
	return err != nil && numberForm.MatchString(labels[len(labels)-1])
}

// badPort reports whether a port can't be dialled. Without one the scheme's is.
func badPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port != "" && (err != nil || n == 0)
}

func (c *check) waits(p Policy) {
	c.Refuse(len(p.Ladder) > 0 && p.Backoff != Backoff{}, "ladder", "has both a ladder and a backoff: use one")
	c.Refuse(len(p.Ladder) > maxLadder, "ladder", "the ladder has %d steps, more than %d", len(p.Ladder), maxLadder)
	for _, d := range p.Ladder {
		c.Refuse(d == 0, "ladder", "a step of the ladder is 0s")
		c.between("ladder", d, time.Millisecond, maxWait)
	}
	c.between("backoff.base", p.Backoff.Base, time.Millisecond, maxWait)
	c.between("backoff.max", p.Backoff.Max, time.Millisecond, maxWait)
	full := p.WithDefaults().Backoff
	c.Refuse(len(p.Ladder) == 0 && full.Max < full.Base, "backoff.max", "backoff.max %s is below backoff.base %s", full.Max, full.Base)
}

// between checks a duration that may be left out.
func (c *check) between(key string, d Duration, low, high time.Duration) {
	if d != 0 {
		c.Between(key, d.D(), low, high)
	}
}

// Parse reads the policies of a YAML file of the form
//
//	biz_types:
//	  - name: order.close
//	    number: 1
//	    group: orders
//
// and validates them. Each message names file, and is one line
// with its place: configs/biz.yaml:12: unknown key "tmeout".
func Parse(text []byte, file string) ([]Policy, error) {
	f, err := yamlfile.Parse(text, file)
	if err != nil {
		return nil, err
	}
	var content struct {
		BizTypes []Policy `yaml:"biz_types"`
	}
	if err := f.Decode(&content); err != nil {
		return nil, err
	}
	if len(content.BizTypes) == 0 {
		return nil, f.Errorf("$.biz_types", "no biz types")
	}
	return content.BizTypes, f.Place(faults(content.BizTypes).Found)
}
