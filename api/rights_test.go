package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// The roles that docs/api.md names let every operation work.
func TestEveryOperationWorksWithTheRolesOfThePage(t *testing.T) {
	t.Parallel()
	cluster := tocsintest.Start(t, closing, remind)
	root := *cluster
	plans, err := ddl.Grants(cluster.Config, ddl.GrantOptions{Roles: []string{"node", "client-add", "client-cancel", "biz", "schedule", "acts", "read-only"}, User: "tocsin_api"})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines("CREATE USER tocsin_api IDENTIFIED BY 'x'\n" + plans[0].Text) {
		if strings.HasPrefix(line, "GRANT") || strings.HasPrefix(line, "CREATE") {
			if _, err := cluster.DB.ExecContext(t.Context(), strings.TrimSuffix(strings.TrimSpace(line), ";")); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	parsed, err := mysql.ParseDSN(cluster.Config.Servers[0].DSN)
	if err != nil {
		t.Fatal(err)
	}
	parsed.User, parsed.Passwd = "tocsin_api", "x"
	root.Config.Servers = []tocsin.Server{{Name: "test", DSN: parsed.FormatDSN()}}
	s := over(t, &root, nil)
	id := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	for _, r := range []request{
		post("/tasks", task(`"dedup_key": "k"`)), post("/tasks:batch", `{"tasks": [`+task(`"dedup_key": "l"`)+`]}`), get("/tasks?biz_id=1"), get("/tasks?status=pending"),
		get("/tasks/" + id), get("/tasks/" + id + "/why"), get("/tasks/" + id + "/runs"), post("/tasks/"+id+":reschedule", `{"delay_ms": 5000}`), post("/tasks/"+id+":bury", "{}"),
		get("/tasks:deadgroups"),
		post("/tasks/"+id+":redrive", ""), act("bury", "", id), act("redrive", "", id), act("reschedule", `, "delay_ms": 5`, id), act("cancel", "", id), post("/tasks/"+id+":cancel", ""), post("/tasks:redrive", `{"all": true}`), get("/biz-types"),
		post("/biz-types/order.close:pause", ""), post("/biz-types/order.close:resume", ""), get("/cluster/nodes"), get("/cluster/tables?counts=true"), get("/stats"), get("/me"), get("/overview"), get("/acts"),
		post("/schedules", hourly("here", `, "jitter": "1m"`)), get("/schedules"), get("/schedules/here"), get("/schedules/here/next"), get("/schedules/here/runs"),
		get("/schedules?q=he&sort=next_fire&last=true"), post("/schedules:preview", hourly("new", "")), post("/schedules:deactivate", `{"names": ["here"]}`),
		post("/schedules:activate", `{"names": ["here"]}`), get("/runs?app=shop&outcome=lost"),
		put("here", "*", hourly("here", `, "payload": "p"`)), post("/schedules/here:deactivate", ""), post("/schedules/here:run", ""), post("/schedules/here:activate", ""),
		post("/schedules/here:backfill", `{"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T03:00:00Z"}`), drop("here", "*"),
	} {
		if got := s.do(r.by("all")); got.status >= 300 || strings.Contains(got.text, "incomplete") || strings.Contains(got.text, `"problem"`) {
			t.Errorf("%s %s: %d %s", r.method, r.path, got.status, got.text)
		}
	}
	if log := s.log.String(); strings.Contains(log, "denied") {
		t.Error(log)
	}
	if got := s.do(get("/tasks/1").by("all")); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.text)
	}
}
