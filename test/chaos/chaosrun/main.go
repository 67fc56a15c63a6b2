// Command chaosrun plays random faults against a cluster of real processes and
// checks every task: see package chaos. The same seed plays the same schedule,
// which is printed first. It exits with 1 if a promise is broken, and keeps the
// folder with logs and journals then.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/tocsinhq/tocsin/test/chaos"
)

func main() {
	chaos.RunRole()
	seed := flag.Uint64("seed", 1, "of the schedule")
	minutes := flag.Float64("minutes", 10, "how long")
	rate := flag.Int("rate", 400, "tasks a second")
	nodes := flag.Int("nodes", 3, "")
	servers := flag.Int("servers", 2, "database servers")
	server := flag.String("server", "", "what they are, as in tocsin dev --server (default mariadb)")
	etcd := flag.Bool("etcd", true, "false: every node claims each row, without etcd")
	outboxes := flag.Int("outboxes", 0, "business servers with an outbox, to which all tasks go; the last of several is PostgreSQL")
	broker := flag.String("sink", "", "kafka, rabbitmq or nats: all tasks go to such a broker, which is killed as nodes are")
	orders := flag.Int("orders", 300, "orders a second, if there are outboxes")
	workers := flag.Int("workers", 0, "processes that ask for tasks by HTTP, all of which are for them; needs -program")
	program := flag.String("program", "", "file of the tocsin program, which the nodes run then")
	calm := flag.Bool("calm", false, "no faults")
	schedules := flag.Int("schedules", 0, "schedules that are changed under faults, which make all tasks")
	changes := flag.Float64("changes", 4, "changes of schedules a second, if there are some")
	aims := flag.Int("aims", 0, "freezes at the moment at which a run of a schedule is admitted, instead of the other faults")
	measure := flag.Duration("measure", 30*time.Second, "how long each cost of schedules is measured; 0: not at all")
	dry := flag.Bool("print", false, "print the schedule and end")
	flag.Parse()
	cfg := chaos.Config{
		Options: chaos.Options{Nodes: *nodes, Servers: *servers, Product: *server, Sweeper: true, NoEtcd: !*etcd},
		Seed:    *seed, Length: time.Duration(*minutes * float64(time.Minute)), Out: os.Stdout, Calm: *calm,
		Load: chaos.Load{Rate: *rate, Changes: 0.12, Fails: true},
	}
	if *broker != "" {
		cfg.Broker, cfg.Load.Fails, cfg.Load.Types = *broker, false, []string{"hook"}
	}
	if *workers > 0 {
		cfg.Workers, cfg.Program, cfg.Sweeper = *workers, *program, false
		cfg.Load.Types, cfg.Load.Changes, cfg.Load.Work = []string{"pull"}, 0.05, 100
	}
	if *outboxes > 0 {
		cfg.Shops, cfg.Load, cfg.Orders = *outboxes, chaos.Load{}, chaos.OrderLoad{Rate: *orders}
	}
	if *schedules > 0 {
		cfg.Runs, cfg.Load = true, chaos.Load{}
		cfg.Aims = *aims
		cfg.Timers = chaos.TimerLoad{Schedules: *schedules, Changes: *changes, Measure: *measure}
	}
	if *dry {
		fmt.Print(chaos.Text(chaos.NewSchedule(cfg.Seed, cfg.Length, cfg.Options)))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := play(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// play runs in a folder of its own, which it removes where all went well.
func play(ctx context.Context, cfg chaos.Config) error {
	dir, err := os.MkdirTemp("", "tocsin-chaos")
	if err != nil {
		return err
	}
	cfg.Dir = dir
	report, err := chaos.Run(ctx, cfg)
	if report != nil {
		fmt.Printf("\nseed %d, %s\n%s", cfg.Seed, cfg.Length, report)
	}
	if err != nil {
		return fmt.Errorf("%w (see %s)", err, dir)
	}
	if len(report.Breaches) > 0 {
		removeServers(dir)
		return fmt.Errorf("%d promises broken; logs and journals are in %s", len(report.Breaches), dir)
	}
	return os.RemoveAll(dir)
}

// removeServers keeps logs and journals but not the data.
func removeServers(dir string) {
	for _, pattern := range []string{"db*", "etcd?", "broker"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range paths {
			_ = os.RemoveAll(path)
		}
	}
}
