package docs_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
)

// Debian's driver, and its reader of JSON.
const (
	jdbc = "/usr/share/java/mariadb-java-client.jar"
	gson = "/usr/share/java/gson.jar"
)

// language runs programs of the document.
type language struct {
	kind        string     // of the program's block: "php orders.php"
	interpreter [][]string // commands that run a file; the first one that passes the check is used
	check       []string   // arguments with which the command fails if it lacks a part
	jars        []string   // files that have to be there too
	debian      string     // packages
	target      string     // of the Makefile
}

var (
	php    = language{"php orders.php", [][]string{{"php"}}, []string{"-r", "exit(extension_loaded('pdo_mysql') ? 0 : 1);"}, nil, "php-cli and php-mysql", "test"}
	python = language{"python orders.py", [][]string{{"python3"}, {"/usr/bin/python3"}}, []string{"-c", "import pymysql"}, nil, "python3-pymysql", "test"}
	java   = language{"java Orders.java", [][]string{{"java", "-cp", jdbc}}, []string{"--describe-module", "jdk.compiler"}, []string{jdbc}, "default-jdk-headless and libmariadb-java", "test-java"}
)

// command returns the one that runs a file. That it is missing is a failure: a skipped test would hide a broken document.
func (l language) command(t *testing.T) []string {
	t.Helper()
	var tried []string
	for _, c := range l.interpreter {
		out, err := exec.CommandContext(t.Context(), c[0], append(c[1:len(c):len(c)], l.check...)...).CombinedOutput()
		for _, jar := range l.jars {
			if err == nil {
				out = nil
				_, err = os.Stat(jar)
			}
		}
		if err == nil {
			return c
		}
		tried = append(tried, strings.TrimSpace(strings.Join(c, " ")+": "+err.Error()+" "+string(out)))
	}
	t.Fatalf("this test runs %s of the documents, and nothing here can: install %s, or run make %s, which does\n%s",
		strings.Fields(l.kind)[1], l.debian, l.target, strings.Join(tried, "\n"))
	return nil
}

// program is one of the document, in a file, with its database's address in the environment.
type program struct {
	t       *testing.T
	command []string
	env     []string
}

// write puts the text of a program into a file.
func (l language) write(t *testing.T, text string) *program {
	t.Helper()
	file := filepath.Join(t.TempDir(), strings.Fields(l.kind)[1])
	write(t, file, text)
	cfg, err := mysql.ParseDSN(devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		t.Fatalf("the programs of the documents connect by TCP: %v", err)
	}
	return &program{t, append(l.command(t), file), []string{"DB_HOST=" + host, "DB_PORT=" + port, "DB_USER=" + cfg.User, "DB_PASSWORD=" + cfg.Passwd}}
}

// run returns the program's standard output, and its error with what it wrote elsewhere.
func (p *program) run(args ...string) (string, error) {
	p.t.Helper()
	all := append(p.command[1:len(p.command):len(p.command)], args...)
	cmd := exec.CommandContext(p.t.Context(), p.command[0], all...)
	cmd.Env = append(os.Environ(), p.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Logf("%v: %v\n%s%s", args, err, out, &stderr)
	}
	return string(out), err
}

// ok wants the program to succeed.
func (p *program) ok(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
	return out
}

// refused wants it to fail.
func (p *program) refused(args ...string) {
	p.t.Helper()
	if out, err := p.run(args...); err == nil {
		p.t.Errorf("%v succeeds, and prints %q", args, out)
	}
}

func TestPHPProgramAddsThroughTheOutbox(t *testing.T)    { t.Parallel(); throughOutbox(t, php) }
func TestPythonProgramAddsThroughTheOutbox(t *testing.T) { t.Parallel(); throughOutbox(t, python) }

func TestJavaProgramAddsThroughTheOutbox(t *testing.T) {
	t.Parallel()
	onlyJava(t)
	throughOutbox(t, java)
}

// onlyJava ends a test of Java except in make test-java.
func onlyJava(t *testing.T) {
	t.Helper()
	if os.Getenv("TOCSIN_TEST_JAVA") == "" {
		t.Skip("a program in Java: make test-java")
	}
}

// throughOutbox runs a program as a service would, with a relay that moves what it writes.
func throughOutbox(t *testing.T, l language) {
	p := newPlace(t, order)
	p.exec(t, "CREATE TABLE "+p.layout.Prefix+"_shop.orders (id BIGINT UNSIGNED PRIMARY KEY, cents INT NOT NULL, paid TINYINT NOT NULL DEFAULT 0)")
	shop := l.write(t, p.program(t, l.kind))
	p.startRelay(t)

	shop.ok("place", "120881", "990")
	row := p.awaitTask(t, 0, tocsin.Pending)
	if compact := strings.ReplaceAll(row.Payload, " ", ""); compact != `{"cents":990}` {
		t.Errorf("payload %s", row.Payload)
	}
	p.near(t, "due_time", row.DueTime, minutes30)

	shop.ok("extend", "120881", "2027-03-04T05:06:07+08:00")
	row = p.awaitTask(t, 1, tocsin.Pending)
	if want := time.Date(2027, 3, 3, 21, 6, 7, 0, time.UTC); !row.DueTime.Equal(want) {
		t.Errorf("due at %s, want %s", row.DueTime, want)
	}

	shop.refused("place", "120881", "990") // there is such an order
	shop.refused("place", "0", "990")      // the outbox refuses the row, so there is no order either
	if n := p.count(t, "orders WHERE id = 0"); n != 0 {
		t.Error("the order stands without its task")
	}
	if n := p.count(t, "orders"); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}

	shop.ok("pay", "120881")
	p.awaitTask(t, 1, tocsin.Cancelled)
	if n := p.count(t, "orders WHERE paid = 1"); n != 1 {
		t.Errorf("%d orders are paid, want 1", n)
	}
	for end := time.Now().Add(time.Minute); p.count(t, "tocsin_outbox") != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("rows stay in the outbox")
		}
	}
}

// count counts rows of a table of the business database.
func (p *place) count(t *testing.T, of string) (n int) {
	t.Helper()
	if err := p.db.GetContext(t.Context(), &n, "SELECT COUNT(*) FROM "+p.layout.Prefix+"_shop."+of); err != nil {
		t.Fatal(err)
	}
	return n
}

// startRelay runs a relay of the outbox until the test ends.
func (p *place) startRelay(t *testing.T) {
	t.Helper()
	r, err := relay.New(relay.Config{
		Tables:   tocsin.Config{Layout: p.layout, Servers: []tocsin.Server{{DSN: devtest.DSN(t)}}},
		Outboxes: []outbox.Config{p.outbox},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
}

// awaitTask returns the only task of the order, when it has a version and status.
func (p *place) awaitTask(t *testing.T, version int, status tocsin.Status) (row task) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		rows := p.tasks(t, order)
		switch {
		case len(rows) == 1 && rows[0].Version == version && rows[0].Status == status:
			return rows[0]
		case len(rows) > 1 || time.Now().After(end):
			t.Fatalf("tasks %+v, want one of version %d that is %s", rows, version, status)
		}
	}
}

// phpDirect calls the functions of the document's direct way.
const phpDirect = `
$db = new PDO(sprintf('mysql:host=%s;port=%s;charset=utf8mb4', getenv('DB_HOST'), getenv('DB_PORT')), getenv('DB_USER'), getenv('DB_PASSWORD'));
echo json_encode([array_column(tasksOf($db, 120881), 'job_id'), cancelTasks($db, 120881, 7), cancelTasks($db, 120881, 7)]);
`

// javaDirect calls the method of the document's direct way, in a transaction of its own.
const javaDirect = `
final class Main {
    public static void main(String[] args) throws SQLException {
        String url = "jdbc:mariadb://" + System.getenv("DB_HOST") + ":" + System.getenv("DB_PORT") + "/";
        try (Connection c = java.sql.DriverManager.getConnection(url, System.getenv("DB_USER"), System.getenv("DB_PASSWORD"))) {
            c.setAutoCommit(false);
            System.out.print(Tasks.add(c, 120881L, 7, Instant.parse("2027-03-04T05:06:07.1230001Z"), null, "{\"say\": \"中文\"}"));
            c.commit();
        }
    }
}

`

func TestPHPProgramOfTheDirectWay(t *testing.T) {
	t.Parallel()
	p := newPlace(t, order)
	id := tocsin.JobID(1<<50 | orderTable<<9)
	p.exec(t, "INSERT INTO "+p.layout.Table(orderTable)+` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
		VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), ?, ?, 0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '{}')`, uint64(id), order, orderType)
	direct := php
	direct.kind = "php direct.php"
	if out := direct.write(t, p.program(t, "php")+phpDirect).ok(); out != `[["`+id.String()+`"],1,0]` {
		t.Errorf("prints %s", out)
	}
}

func TestJavaProgramOfTheDirectWay(t *testing.T) {
	t.Parallel()
	onlyJava(t)
	p := newPlace(t, order)
	class := "final class Tasks"
	text := strings.Replace(p.program(t, "java"), class, javaDirect+class, 1)
	direct := java
	direct.kind = "java Main.java"
	out := direct.write(t, text).ok()
	rows := p.tasks(t, order)
	if len(rows) != 1 || out != rows[0].JobID.String() || rows[0].Payload != `{"say": "中文"}` {
		t.Fatalf("prints %s; rows %+v", out, rows)
	}
	if want := time.Date(2027, 3, 4, 5, 6, 7, 124e6, time.UTC); !rows[0].DueTime.Equal(want) { // rounded up
		t.Errorf("due at %s, want %s", rows[0].DueTime, want)
	}
}
