package house

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Why a call that brings something along needs no test of many processes that make it at once with the same content.
const (
	inMemory  = "it changes this process only"
	addsTasks = "each call adds a task, unless dedup or unique keys say otherwise: TestUniqueKeysAndDeliveries"
	byPeople  = "a person runs it once, with all nodes stopped"
	perTask   = "it is about tasks that are there, and runs of them"
	readsOnly = "it changes nothing"
	perUser   = "each call makes another one"
)

// broughtAlong are the exported functions, the operations of the HTTP API and the commands that programs may run when they start, many at
// once and with the same content: all must succeed, and one changes something. Each has its test, or why it needs none.
var broughtAlong = map[string]string{
	"ddl.Apply":                 "TestTheSameTablesFromManyAtOnce",
	"ddl.ApplyOutbox":           "TestTheSameTablesFromManyAtOnce",
	"ddl.Finish":                "TestTheSameUpgradeFromManyAtOnce",
	"ddl.SetSweepGrace":         "TestTheSameUpgradeFromManyAtOnce",
	"ddl.SetOwnership":          byPeople,
	"ddl.Activate":              byPeople,
	"ddl.AcceptRestored":        byPeople,
	"ddl.HoldDatabases":         byPeople,
	"ddl.Grants":                readsOnly,
	"tocsinpg.ApplyOutbox":      "TestTheSameOutboxFromManyAtOnce",
	"biztype.Apply":             "TestTheSamePoliciesFromManyAtOnce",
	"biztype.Bring":             "TestTheSamePoliciesFromManyAtOnce",
	"biztype.SetPaused":         "TestTheSamePoliciesFromManyAtOnce",
	"operator.Pause":            "TestTheSameRequestFromManyAtOnce",
	"schedule.Create":           "TestTheSameDefinitionFromManyAtOnce",
	"schedule.CreateOnce":       "TestTheSameDefinitionFromManyAtOnce",
	"schedule.Apply":            "TestTheSameDefinitionFromManyAtOnce",
	"schedule.ApplyTx":          "TestTheSameDefinitionFromManyAtOnce",
	"schedule.Activate":         "TestTheSameRequestFromManyAtOnce",
	"schedule.ActivateMany":     "TestTheSameRequestFromManyAtOnce",
	"schedule.Deactivate":       "TestTheSameRequestFromManyAtOnce",
	"schedule.DeactivateMany":   "TestTheSameRequestFromManyAtOnce",
	"assign.Adopt":              "TestOfNodesOfTwoClustersAtOnceOneClusterGetsIn",
	"tocsin.Define":             inMemory,
	"tocsin.Add":                addsTasks,
	"tocsin.AddTx":              addsTasks,
	"tocsin.AddMany":            addsTasks,
	"tocsin.AddManyTx":          addsTasks,
	"dispatcher.Set":            inMemory,
	"dispatcher.SetPolicies":    inMemory,
	"scanner.Set":               inMemory,
	"tocsinotel.Add":            inMemory,
	"add_task":                  addsTasks,
	"add_tasks":                 addsTasks,
	"create_schedule":           "TestTheSameRequestFromManyAtOnce",
	"put_schedule":              "TestTheSameRequestFromManyAtOnce",
	"activate_schedule":         "TestTheSameRequestFromManyAtOnce",
	"deactivate_schedule":       "TestTheSameRequestFromManyAtOnce",
	"activate_schedules":        "TestTheSameRequestFromManyAtOnce",
	"deactivate_schedules":      "TestTheSameRequestFromManyAtOnce",
	"pause_biz_type":            "TestTheSameRequestFromManyAtOnce",
	"resume_biz_type":           "TestTheSameRequestFromManyAtOnce",
	"preview_schedule":          readsOnly,
	"run_schedule":              perTask,
	"backfill_schedule":         perTask,
	"command ddl.go apply":      "TestTheSameCommandFromManyProcessesAtOnce",
	"command ddl.go finish":     "TestTheSameCommandFromManyProcessesAtOnce",
	"command ddl.go grants":     readsOnly,
	"command biz.go apply":      "TestTheSameCommandFromManyProcessesAtOnce",
	"command schedule.go apply": "TestTheSameCommandFromManyProcessesAtOnce",
	"command outbox.go apply":   "TestTheSameCommandFromManyProcessesAtOnce",
	"command cluster.go adopt":  "TestOfNodesOfTwoClustersAtOnceOneClusterGetsIn",
	"command task.go add":       addsTasks,
	"command serve.go new":      perUser,
}

// bringing matches the names of what brings something along.
var bringing = regexp.MustCompile(`^(?:Apply|Create|Define|Bring|Register|Migrate|Finish|Grants?|Set|Accept|Hold|Adopt|Add|Activate|Deactivate|Pause|Resume|Ensure|Put|Install)(?:[A-Z]\w*)?$`)

// bringingCommand matches the Use of such a command.
var bringingCommand = regexp.MustCompile(`^(apply|create|define|finish|grants|adopt|add|new|register|set|migrate|activate|install)\b`)

// operation matches the name of such an operation of the HTTP API.
var operation = regexp.MustCompile(`operationId: ((?:add|create|put|activate|deactivate|pause|resume|preview|run|backfill|define|apply|set)_\w+)`)

// AtOnce checks that somebody has judged what each call does that many programs make at once when they start.
func AtOnce(m Module) []string { return atOnce(m, broughtAlong) }

func atOnce(m Module, list map[string]string) []string {
	var bad []string
	seen := map[string]bool{}
	judge := func(name string) {
		if seen[name] = true; list[name] == "" {
			bad = append(bad, name+": programs may call it at once when they start: have them all succeed, test it, and say so in the list")
		}
	}
	for _, f := range m.shipped() {
		switch {
		case f.Dir() == "cmd/tocsin":
			eachString(f.AST, func(lit *ast.BasicLit, text string) {
				if use := bringingCommand.FindString(text); use != "" && strings.Contains(string(f.Src), "Use: "+lit.Value) {
					judge("command " + strings.TrimPrefix(f.Path, "cmd/tocsin/") + " " + use)
				}
			})
		case !coversAny([]string{"internal/...", "cmd/...", "test/...", "examples/...", "scripts/...", "sink", "webhook", "api/console"}, f.Dir()):
			for _, d := range f.AST.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && bringing.MatchString(fn.Name.Name) && exportedReceiver(fn) {
					judge(f.AST.Name.Name + "." + fn.Name.Name)
				}
			}
		}
	}
	for _, text := range m.Texts {
		if text.Path == "api/openapi.yaml" {
			for _, found := range operation.FindAllStringSubmatch(text.Body, -1) {
				judge(found[1])
			}
		}
	}
	tests := testNames(m)
	for name, why := range list {
		if !seen[name] {
			bad = append(bad, name+" is no more: take it off the list of what programs bring along")
		}
		if strings.HasPrefix(why, "Test") && !tests[why] {
			bad = append(bad, fmt.Sprintf("%s: there is no %s", name, strconv.Quote(why)))
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// exportedReceiver reports whether a function has no receiver, or one of an exported type.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// testNames are the names of all tests.
func testNames(m Module) map[string]bool {
	names := map[string]bool{}
	for _, f := range m.Go {
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.IsTest() && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
