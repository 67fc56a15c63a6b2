package main

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/upkeep"
)

// deployed reads a file of deploy/.
func deployed(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// refusedArgs returns why the command would refuse the arguments before it does anything; "" if it would not.
func refusedArgs(args []string) string {
	c, rest, err := newRoot(&app{}).Find(args)
	switch {
	case err != nil:
		return err.Error()
	case !c.HasParent() || c.HasSubCommands():
		return "no command"
	}
	if err := c.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err.Error()
	}
	return ""
}

func TestWrongArgumentsInADeploymentFileAreFound(t *testing.T) {
	t.Parallel()
	for line, works := range map[string]bool{
		"serve --listen 0.0.0.0:8480 --config /etc/tocsin/tocsin.yaml": true, "biz apply /etc/tocsin/biz.yaml": true, "sweep --once": true,
		"server": false, "": false, "biz": false, "sweep --onze": false, "sweep --timeout 5": false, "biz apply": false,
	} {
		if why := refusedArgs(strings.Fields(line)); (why == "") != works {
			t.Errorf("%q: %q", line, why)
		}
	}
}

// wantArgs fails if a command line of a file is not one of the command's.
func wantArgs(t *testing.T, file string, args []string) {
	t.Helper()
	if why := refusedArgs(args); why != "" {
		t.Errorf("%s: tocsin %s: %s", file, strings.Join(args, " "), why)
	}
}

// parseUnit reads a unit file: every value of each key, "Service.ExecStart".
func parseUnit(t *testing.T, text string) map[string][]string {
	t.Helper()
	values, section := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		key, value, isPair := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
		case section == "" || !isPair || !regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(key):
			t.Errorf("not a line of a unit: %q", line)
		default:
			values[section+"."+key] = append(values[section+"."+key], value)
		}
	}
	return values
}

const installed = "/usr/local/bin/tocsin "

func TestUnitsRunCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		u := parseUnit(t, deployed(t, "systemd/"+name))
		start := u["Service.ExecStart"]
		if len(start) != 1 || !strings.HasPrefix(start[0], installed) {
			t.Errorf("%s: ExecStart %q", name, start)
			continue
		}
		wantArgs(t, name, strings.Fields(strings.TrimPrefix(start[0], installed)))
		for _, key := range []string{"NoNewPrivileges", "DynamicUser", "PrivateTmp"} {
			if !slices.Equal(u["Service."+key], []string{"yes"}) {
				t.Errorf("%s: %s %q", name, key, u["Service."+key])
			}
		}
		if name == "tocsin.service" {
			stop, err := time.ParseDuration(u["Service.TimeoutStopSec"][0] + "s")
			if least := config.DefaultDrainTimeout + 5*time.Second; err != nil || stop < least {
				t.Errorf("TimeoutStopSec is %s, %v, want at least %s", stop, err, least)
			}
			continue
		}
		timer := parseUnit(t, deployed(t, "systemd/"+strings.TrimSuffix(name, ".service")+".timer"))
		if len(timer["Timer.OnCalendar"]) != 1 || !slices.Equal(timer["Install.WantedBy"], []string{"timers.target"}) || len(u["Service.TimeoutStartSec"]) != 1 {
			t.Errorf("%s: its timer is %v", name, timer)
		}
	}
}

func TestTheCrontabRunsCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	job := regexp.MustCompile(`^(\S+ \S+ \S+ \S+ \S+)\s+tocsin\s+set -a; \. /etc/tocsin/([a-z]+)\.env; exec tocsin ([^>%]+?)( >/dev/null)?$`)
	found := 0
	for line := range strings.Lines(deployed(t, "cron/tocsin")) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") || regexp.MustCompile(`^[A-Z_]+=\S+$`).MatchString(line) {
			continue
		}
		m := job.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(m[3], m[2]) {
			t.Errorf("not a job: %q", line)
			continue
		}
		found++
		wantArgs(t, "crontab", strings.Fields(m[3]))
		if _, err := upkeep.ParseTimes(m[1]); err != nil {
			t.Error(err)
		}
	}
	if found != 3 {
		t.Errorf("%d jobs", found)
	}
}

func TestTheDockerfile(t *testing.T) {
	t.Parallel()
	instruction := regexp.MustCompile(`^(FROM|WORKDIR|COPY|RUN|ARG|ENV|USER|EXPOSE|ENTRYPOINT|CMD) \S.*$`)
	last := map[string]string{}
	for line := range strings.Lines(deployed(t, "docker/Dockerfile")) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !instruction.MatchString(line) {
			t.Errorf("not an instruction: %q", line)
		}
		word, rest, _ := strings.Cut(line, " ")
		if word == "FROM" && rest != "scratch" && !strings.HasPrefix(rest, "golang:") {
			t.Errorf("based on %s", rest)
		}
		if word == "FROM" && strings.HasPrefix(rest, "golang:") {
			version, _, _ := strings.Cut(strings.TrimPrefix(rest, "golang:"), "-")
			module, err := os.ReadFile("../../go.mod")
			if err != nil || !strings.Contains(string(module), "\ngo "+version+".") {
				t.Errorf("go.mod wants another Go than %s, %v", version, err)
			}
		}
		last[word] = rest
	}
	var entry, args []string
	if err := json.Unmarshal([]byte(last["ENTRYPOINT"]), &entry); err != nil || !slices.Equal(entry, []string{"/usr/local/bin/tocsin"}) {
		t.Errorf("entrypoint %v, %v", entry, err)
	}
	if err := json.Unmarshal([]byte(last["CMD"]), &args); err != nil {
		t.Error(err)
	}
	wantArgs(t, "Dockerfile", args)
	if last["USER"] != "65532:65532" || last["EXPOSE"] != statusPort || !slices.Contains(args, "0.0.0.0:"+statusPort) {
		t.Errorf("user %s, port %s, %v", last["USER"], last["EXPOSE"], args)
	}
	if !strings.Contains(last["ENV"], config.EnvPath+"="+inContainer) {
		t.Errorf("env %s", last["ENV"])
	}
}

// What the files of deploy/ agree on.
const (
	statusPort  = "8480"
	inContainer = "/etc/tocsin/tocsin.yaml"
)

// composed is what the test reads of compose.yaml.
type composed struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Volumes map[string]any
}

func TestTheComposeFile(t *testing.T) {
	t.Parallel()
	var c composed
	if err := yaml.Unmarshal([]byte(deployed(t, "compose/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Services) < 10 {
		t.Fatalf("%d services", len(c.Services))
	}
	for name, s := range c.Services {
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, named := c.Volumes[source]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join("../../deploy/compose", source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for other := range s.DependsOn {
			if _, ok := c.Services[other]; !ok {
				t.Errorf("%s waits for %s, which there is not", name, other)
			}
		}
		if s.Image != "tocsin" {
			continue
		}
		wantArgs(t, "compose service "+name, s.Command)
		lookup := func(variable string) (string, bool) { value, ok := s.Environment[variable]; return value, ok }
		file, err := config.Parse([]byte(deployed(t, "compose/tocsin.yaml")), "compose/tocsin.yaml", lookup)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, endpoint := range append(file.Etcd.Endpoints, "mysql:3306") {
			host, _, _ := strings.Cut(endpoint, ":")
			if _, ok := c.Services[host]; !ok || !strings.Contains(file.Servers[0].DSN, "(mysql:3306)") {
				t.Errorf("the config names %s, which is no service", endpoint)
			}
		}
	}
	if _, err := biztype.Parse([]byte(deployed(t, "compose/biz.yaml")), "biz.yaml"); err != nil {
		t.Error(err)
	}
	for _, target := range regexp.MustCompile(`"([a-z0-9]+):(\d+)"`).FindAllStringSubmatch(deployed(t, "compose/prometheus.yml"), -1) {
		port := cmp.Or(map[string]string{"etcd": "2379", "pushgateway": "9091"}[target[1]], statusPort)
		if _, ok := c.Services[target[1]]; !ok || target[2] != port {
			t.Errorf("Prometheus scrapes %v", target)
		}
	}
}

// The compose file mounts the dashboards where the provisioning file looks for them, and sets the data source's variable.
func TestGrafanaFindsTheDashboards(t *testing.T) {
	t.Parallel()
	var c composed
	if err := yaml.Unmarshal([]byte(deployed(t, "compose/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	var found struct {
		Providers []struct {
			Options struct{ Path string }
		}
	}
	if err := yaml.Unmarshal([]byte(deployed(t, "grafana/provisioning/dashboards/tocsin.yaml")), &found); err != nil || len(found.Providers) != 1 {
		t.Fatal(found, err)
	}
	grafana := c.Services["grafana"]
	want := []string{"../grafana/provisioning:/etc/grafana/provisioning:ro", "../grafana/dashboards:" + found.Providers[0].Options.Path + ":ro"}
	for _, volume := range want {
		if !slices.Contains(grafana.Volumes, volume) {
			t.Errorf("Grafana's volumes %v lack %s", grafana.Volumes, volume)
		}
	}
	variable := regexp.MustCompile(`(?m)^ +url: \$([A-Z_]+)$`).FindStringSubmatch(deployed(t, "grafana/provisioning/datasources/prometheus.yaml"))
	if variable == nil || grafana.Environment[variable[1]] != "http://prometheus:9090" {
		t.Errorf("the data source's address is %v, of %v", variable, grafana.Environment)
	}
	if _, err := os.Stat("../../deploy/grafana/dashboards/overview.json"); err != nil {
		t.Error(err)
	}
}

func TestEveryYAMLFileOfDeployIsOne(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/templates/") || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml" {
			return err
		}
		text, err := os.ReadFile(path)
		var any any
		if err == nil {
			err = yaml.Unmarshal(text, &any)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// probed returns the code with which the status page of a node with a token answers a probe, which has none.
func probed(path string) int {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	w := httptest.NewRecorder()
	statusMux(ok, newRegistry(), func() string { return "wanted" }, func() string { return "" }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}
