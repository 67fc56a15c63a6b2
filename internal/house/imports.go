package house

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// mayImport says which packages of the module each folder's shipped files may import; "..." stands for every folder below.
// A folder that is not named here is a complaint: whoever adds a package decides here where it stands.
var mayImport = map[string][]string{
	".":                           {"outbox", "internal/client", "internal/ids", "internal/mysql", "internal/name"},
	"internal/client":             {"outbox", "internal/ids", "internal/layoutrow", "internal/mysql", "internal/name"},
	"ddl":                         {".", "outbox", "internal/client", "internal/ids", "internal/layoutrow", "internal/loop", "internal/mysql", "internal/name"},
	"outbox":                      {"internal/mysql", "internal/name"},
	"test/relaytest":              {".", "biztype", "ddl", "outbox", "internal/client", "internal/devserver/devtest", "internal/loop"},
	"outbox/relay":                {".", "outbox", "internal/client", "internal/loop", "internal/mysql", "internal/name"},
	"biztype":                     {".", "internal/client", "internal/layoutrow", "internal/loop", "internal/mysql", "internal/name", "internal/yamlfile"},
	"internal/duequeue":           {"."},
	"internal/store":              {".", "internal/duequeue", "biztype", "internal/client", "internal/layoutrow", "internal/loop", "internal/mysql", "internal/name"},
	"internal/session":            {".", "internal/store", "internal/loop", "internal/mysql"},
	"assign":                      {".", "internal/session", "internal/store", "internal/loop", "internal/name", "internal/client"},
	"scanner":                     {".", "internal/duequeue", "internal/store", "internal/loop"},
	"dispatcher":                  {".", "biztype", "internal/duequeue", "schedule", "internal/store", "internal/loop", "internal/mysql", "internal/client", "internal/ids"},
	"webhook":                     {".", "internal/client", "internal/loop", "internal/name"},
	"worker":                      {".", "internal/client", "internal/loop", "internal/name"},
	"sink":                        {".", "webhook", "internal/client"},
	"sink/sinktest":               {".", "sink", "internal/client"},
	"upkeep":                      {".", "biztype", "internal/duequeue", "outbox", "schedule", "schedule/firetimes", "internal/store", "webhook", "internal/loop", "internal/mysql"},
	"operator":                    {".", "assign", "biztype", "dispatcher", "internal/duequeue", "node", "pull", "schedule", "upkeep", "internal/store", "internal/client", "internal/layoutrow", "internal/mysql", "internal/name", "internal/ids", "internal/loop"},
	"schedule":                    {".", "biztype", "schedule/firetimes", "internal/store", "internal/client", "internal/ids", "internal/loop", "internal/mysql", "internal/name", "internal/yamlfile"},
	"pull":                        {".", "biztype", "dispatcher", "schedule", "internal/store", "internal/client", "internal/ids", "internal/mysql"},
	"node":                        {".", "pull", "assign", "outbox", "outbox/relay", "scanner", "dispatcher", "schedule", "upkeep", "internal/duequeue", "internal/store", "biztype", "webhook", "sink", "internal/..."},
	"node/nodetest":               {".", "biztype", "ddl", "node", "outbox", "outbox/relay", "tocsintest", "webhook", "internal/ids", "internal/client", "internal/mysql"},
	"schedule/firetimes":          {},
	"tocsintest":                  {".", "ddl", "biztype", "outbox", "internal/client", "internal/devserver"},
	"contrib/tocsinprom":          {"."},
	"contrib/tocsinotel":          {"."},
	"contrib/tocsinotel/nodeotel": {".", "node", "contrib/tocsinotel", "webhook"},
	"contrib/tocsinpg":            {".", "ddl", "outbox", "internal/loop"},
	"contrib/tocsinkafka":         {".", "outbox", "sink", "internal/loop", "internal/name"},
	"contrib/tocsinkafka/broker":  {"internal/devserver"},
	"contrib/tocsinrabbitmq":      {".", "sink", "internal/loop"},
	"contrib/tocsinnats":          {".", "sink", "internal/loop"},
	"contrib/tocsinpg/pgtest":     {".", "outbox", "contrib/tocsinpg", "tocsintest", "internal/devserver"},
	"config":                      {".", "assign", "biztype", "ddl", "node", "outbox", "scanner", "sink", "upkeep", "internal/apitoken", "internal/mysql", "internal/name", "internal/yamlfile"},
	"api":                         {".", "assign", "biztype", "operator", "pull", "schedule", "internal/apitoken", "internal/loop", "internal/mysql", "internal/name"},
	"api/console":                 {"api", "schedule/firetimes", "internal/apitoken", "internal/loop", "internal/name", "internal/quantile"},
	"examples/shop":               {".", "config", "node", "outbox"},
	"cmd/tocsin":                  {"..."},
	"cmd/tocsin/...":              {"..."},
	"internal/layoutrow":          {"internal/mysql"},
	"internal/mysql":              {"internal/loop"},
	"internal/ids":                {},
	"internal/loop":               {},
	"internal/devserver":          {},
	"internal/devserver/...":      {"internal/devserver"},
	"internal/devcluster":         {".", "assign", "biztype", "ddl", "dispatcher", "node", "pull", "schedule", "internal/store", "contrib/tocsinprom", "sink", "upkeep", "webhook", "internal/..."},
	"test/chaos":                  {".", "assign", "biztype", "ddl", "node", "outbox", "outbox/relay", "schedule", "sink", "internal/store", "contrib/tocsinkafka", "contrib/tocsinkafka/broker", "contrib/tocsinnats", "contrib/tocsinpg", "contrib/tocsinpg/...", "contrib/tocsinrabbitmq", "upkeep", "internal/client", "internal/devserver", "internal/loop", "internal/quantile"},
	"test/chaos/...":              {"test/chaos"},
	"internal/dashboards":         {},
	"internal/yamlfile":           {"internal/name"},
	"internal/house":              {},
	"test/model":                  {},
	"internal/name":               {},
	"internal/quantile":           {},
	"internal/apitoken":           {"internal/name"},
	"internal/...":                {".", "biztype", "ddl", "internal/..."},
	"test/bench":                  {"..."},
	"test/pullers":                {".", "internal/devcluster", "internal/loop"},
	"test/targets":                {"internal/quantile"},
}

// engines never import one another, nor config or cmd; not even in tests.
var engines = []string{"assign", "scanner", "dispatcher", "upkeep", "outbox/relay"}

// foreign says where packages of others may be imported by shipped files, by the beginning of their path.
var foreign = []struct {
	prefix string
	only   []string
}{
	{"go.etcd.io/", []string{"assign", "biztype", "internal/devserver/etcdtest"}},
	{"github.com/spf13/", []string{"cmd/tocsin", "cmd/tocsin/..."}},
	{"github.com/schollz/progressbar/", []string{"cmd/tocsin", "cmd/tocsin/..."}},
	{"github.com/Shopify/toxiproxy/", []string{"test/chaos"}},
	{"github.com/robfig/", []string{"schedule/firetimes", "upkeep"}},
	{"time/tzdata", []string{"schedule/firetimes"}},
	{"github.com/grafana/", []string{"internal/dashboards"}},
	{"go.opentelemetry.io/", []string{"contrib/tocsinotel", "contrib/tocsinotel/..."}},
	{"github.com/danielgtaylor/huma/", []string{"api"}},
	{"github.com/twmb/", []string{"contrib/tocsinkafka", "contrib/tocsinkafka/...", "test/chaos"}},
	{"github.com/rabbitmq/", []string{"contrib/tocsinrabbitmq", "test/chaos"}},
	{"github.com/nats-io/", []string{"contrib/tocsinnats", "test/chaos"}},
	{"github.com/jackc/", []string{"contrib/tocsinpg", "contrib/tocsinpg/...", "test/chaos"}},
	{"testing", []string{"tocsintest", "contrib/tocsinpg/pgtest", "node/nodetest", "sink/sinktest", "internal/devserver/devtest", "internal/devserver/etcdtest", "test/relaytest"}},
	{modulePath + "/internal/devserver", []string{"cmd/tocsin", "cmd/tocsin/...", "tocsintest", "contrib/tocsinpg/pgtest", "contrib/tocsinkafka/broker", "internal/...", "test/..."}},
}

// lean are the packages that services import to add tasks, or to work on them by HTTP: all that each takes from other modules.
var lean = map[string][]string{
	".":               {"github.com/go-sql-driver/mysql", "golang.org/x/time/rate"},
	"internal/client": {"github.com/go-sql-driver/mysql", "golang.org/x/time/rate"},
	"worker":          {"github.com/cenkalti/backoff/v5"},
}

// Imports checks the directions of all imports.
func Imports(m Module) []string {
	var bad []string
	for _, f := range m.Go {
		for _, spec := range f.AST.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the parser has refused it already
			}
			if why := refused(f, target); why != "" {
				bad = append(bad, f.at(spec.Pos(), "%s", why))
			}
		}
	}
	return bad
}

// refused says why the file may not import the package, "" if it may.
func refused(f *File, target string) string {
	inside, ours := strings.CutPrefix(target, modulePath)
	inside = strings.TrimPrefix(inside, "/")
	if inside == "" {
		inside = "."
	}
	switch {
	case ours && engineRule(f.Dir(), inside):
		return fmt.Sprintf("engine %s imports %s", f.Dir(), inside)
	case f.IsTest():
		return ""
	case ours && !inTable(f.Dir(), inside):
		return fmt.Sprintf("%s may not import %s (see the table in internal/house/imports.go)", f.Dir(), inside)
	case !ours && lean[f.Dir()] != nil && !standard(target) && !slices.Contains(lean[f.Dir()], target):
		return fmt.Sprintf("%s may not import %s: every program that adds tasks, or works on them by HTTP, would need it", f.Dir(), target)
	}
	return foreignRule(f.Dir(), target)
}

// engineRule reports whether an engine imports what no engine may.
func engineRule(dir, target string) bool {
	return slices.Contains(engines, dir) && dir != target &&
		(slices.Contains(engines, target) || covers("config", target) || covers("cmd/...", target))
}

// inTable reports whether mayImport has target for dir, by the most telling line.
func inTable(dir, target string) bool {
	allowed, ok := mayImport[dir]
	for up := dir; !ok && up != "."; up = path.Dir(up) {
		allowed, ok = mayImport[path.Dir(up)+"/..."]
	}
	return coversAny(allowed, target)
}

// foreignRule applies foreign.
func foreignRule(dir, target string) string {
	for _, rule := range foreign {
		if strings.HasPrefix(target, rule.prefix) && !coversAny(rule.only, dir) {
			return fmt.Sprintf("%s may not import %s: only %s may", dir, target, strings.Join(rule.only, ", "))
		}
	}
	return ""
}

// covers reports whether a pattern of the tables, "x" or "x/...", means dir.
func covers(pattern, dir string) bool {
	if below, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(dir, below)
	}
	return pattern == dir
}

func coversAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, dir) })
}

// standard reports whether the path is of the standard library: no dot in its first word.
func standard(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return !strings.Contains(first, ".")
}
