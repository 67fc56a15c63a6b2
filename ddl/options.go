package ddl

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/name"
)

// Defaults and bounds of Options.
const (
	DefaultDoorbellHorizon = 10 * time.Second
	DefaultParallel        = 4
	DefaultSweepGrace      = time.Minute
	MinSweepGrace          = time.Second
	MaxSweepGrace          = 24 * time.Hour
	DefaultWait            = time.Minute
	maxDoorbellHorizon     = time.Hour
	maxParallel            = 64
)

// Options says how to create the tables. The zero value is fine.
type Options struct {
	Cluster         string                // id for all databases, [A-Za-z0-9._-], at most 64; "" takes the config's, else the stored one, else makes one
	Identity        string                // distinguishes the cluster from others with its id; form as Cluster; "" takes the stored one, or else makes one
	Ownership       string                // ByEtcd or ByRows, for new databases; others that say otherwise are refused; "" takes the stored one, else ByEtcd
	DoorbellHorizon time.Duration         // stored in new databases; 0 means 10 s, at most 1 h; a stored one stays
	SweepGrace      time.Duration         // how long a task must be overdue before a sweep takes it, in whole ms, for databases that have none stored; others that say otherwise are refused; 0 takes the stored one, else 1 min; 1 s to 24 h
	Parallel        int                   // connections to each server, and two more while tables are altered; 0 means 4, at most 64
	Progress        func(done, total int) // tables that stand, of all; called often, by one goroutine at a time; nil: no calls
	Migrated        func(done, total int) // tables that were altered, of those to alter; called as Progress is
	Wait            time.Duration         // how long to go on while no table can be altered, as transactions use all that are left, and to wait for another Apply; 0 means 1 min

	worksWith int // what new databases say; 0: SchemaVersion
}

// withDefaults fills in what is zero and reports what is out of bounds.
func (o Options) withDefaults(cfg tocsin.Config) (Options, error) {
	o.Cluster = cmp.Or(o.Cluster, cfg.Cluster)
	o.DoorbellHorizon = cmp.Or(o.DoorbellHorizon, DefaultDoorbellHorizon)
	o.Parallel = cmp.Or(o.Parallel, DefaultParallel)
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	for _, given := range []struct{ what, name string }{{"cluster id", o.Cluster}, {"identity", o.Identity}} {
		if given.name == "" {
			continue
		}
		if err := name.Check(given.what, given.name); err != nil {
			return o, err
		}
	}
	switch {
	case cfg.Cluster != "" && o.Cluster != cfg.Cluster:
		return o, fmt.Errorf("cluster id %q differs from the config's %q", o.Cluster, cfg.Cluster)
	case o.Ownership != "" && checkOwnership(o.Ownership) != nil:
		return o, checkOwnership(o.Ownership)
	case o.DoorbellHorizon < time.Millisecond || o.DoorbellHorizon > maxDoorbellHorizon:
		return o, fmt.Errorf("doorbell horizon %s: use 1ms to %s", o.DoorbellHorizon, maxDoorbellHorizon)
	case o.SweepGrace != 0 && layoutrow.CheckGrace(o.SweepGrace) != nil:
		return o, layoutrow.CheckGrace(o.SweepGrace)
	case checkEffort(o.Wait, o.Parallel) != nil:
		return o, checkEffort(o.Wait, o.Parallel)
	}
	return o, cfg.Validate()
}

// checkEffort checks how long a call may wait, and its connections to each server.
func checkEffort(wait time.Duration, parallel int) error {
	if err := client.CheckDuration("wait", wait); err != nil {
		return err
	}
	switch {
	case parallel < 1 || parallel > maxParallel:
		return fmt.Errorf("%d connections to each server: use 1 to %d", parallel, maxParallel)
	}
	return nil
}
