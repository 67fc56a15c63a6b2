package biztype

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// stragglers is how long Load waits for the other servers once one has answered.
const stragglers = time.Second

// applyTries bounds how often Apply starts anew because another Apply was
// faster.
const applyTries = 5

// Result says what Apply found and wrote.
type Result struct {
	Types     []TypeResult      `json:"types"`     // in the order of the policies
	Revision  uint64            `json:"revision"`  // the highest of these types
	Databases int               `json:"databases"` // databases that were written
	Kept      map[string]string `json:"-"`         // of Bring: biz types whose stored policy stays, although the code has another one, and why
}

// Apply writes the policies into the biz_type table of every database. It
// writes only what differs, and leaves types that are not among the policies
// alone. Where a server can't be reached the others are written, and the error
// names it; Apply again when it is back. Several may run at once. A policy that differs from the
// stored one has no Edition from then on: no program's code changes it.
func Apply(ctx context.Context, cfg tocsin.Config, policies []Policy) (Result, error) {
	return applyPolicies(ctx, cfg, policies, false)
}

// Preview returns what Apply would do. It writes nothing.
func Preview(ctx context.Context, cfg tocsin.Config, policies []Policy) (Result, error) {
	return applyPolicies(ctx, cfg, policies, true)
}

func applyPolicies(ctx context.Context, cfg tocsin.Config, policies []Policy, dry bool) (Result, error) {
	policies = slices.Clone(policies)
	for i := range policies {
		policies[i].Edition = 0
	}
	if err := Validate(policies); err != nil {
		return Result{}, err
	}
	return apply(ctx, cfg, dry, func(databases []database, _ error) ([]row, error) {
		rows := make([]row, len(policies))
		for i, p := range policies {
			var err error
			if rows[i], err = newRow(withEdition(databases, p)); err != nil {
				return nil, err
			}
		}
		return rows, checkAlarms(databases, policies)
	})
}

// wanted makes the rows that are to be stored from what is stored. The error names the databases that could not be read.
type wanted func([]database, error) ([]row, error)

// apply writes what wanted makes of what is stored, and asks it again where
// somebody else changed that meanwhile. With dry it writes nothing.
func apply(ctx context.Context, cfg tocsin.Config, dry bool, wanted wanted) (Result, error) {
	servers, err := openServers(cfg, 2)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = client.CloseServers(servers) }()
	var res Result
	for range applyTries {
		res, err = applyOnce(ctx, cfg, servers, dry, wanted)
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return res, err
}

func applyOnce(ctx context.Context, cfg tocsin.Config, servers []*mysql.Server, dry bool, wanted wanted) (Result, error) {
	databases, failed := readAll(ctx, cfg, servers, 0)
	if len(databases) == 0 {
		return Result{}, firstForeign(failed)
	}
	rows, err := wanted(databases, failed)
	if err != nil {
		return Result{}, err
	}
	changes, err := compare(databases, rows, time.Now())
	if err != nil {
		return Result{}, err
	}
	if dry {
		return summary(changes, 0), failed
	}
	written, err := writeAll(ctx, databases, changes)
	return summary(changes, written), errors.Join(failed, err)
}

func summary(changes []change, written int) Result {
	res := Result{Databases: written}
	for _, c := range changes {
		res.Types = append(res.Types, TypeResult{c.row.Name, c.row.Number, c.verdict})
		res.Revision = max(res.Revision, c.row.Revision)
	}
	return res
}

// writeAll writes the lowest database that takes writes first and alone, on the
// condition that nothing changed there since it was read: of two Applies at once,
// one gets past it. It returns how many databases it wrote.
func writeAll(ctx context.Context, databases []database, changes []change) (int, error) {
	databases, written, failed := writeFirst(ctx, databases, changes)
	if databases == nil {
		return written, failed
	}
	errs := make([]error, len(databases))
	var wg sync.WaitGroup
	for i, d := range databases {
		if due := d.due(changes); len(due) > 0 {
			written++
			wg.Go(func() { errs[i] = d.write(ctx, due, false) })
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			written--
		}
	}
	return written, errors.Join(append([]error{failed}, errs...)...)
}

// writeFirst writes the first database that takes writes, and returns those that
// are left; nil: nothing more may be written.
func writeFirst(ctx context.Context, databases []database, changes []change) (left []database, written int, failed error) {
	for i, d := range databases {
		due := d.due(changes)
		if len(due) == 0 {
			return databases[i:], 0, failed
		}
		err := d.write(ctx, due, true)
		if err == nil {
			return databases[i+1:], 1, failed
		}
		given := slices.ContainsFunc(due, func(c change) bool { return c.row.given })
		if failed = errors.Join(failed, err); given || !ofDatabase(err) {
			return nil, 0, failed
		}
	}
	return nil, 0, failed
}

// ofDatabase reports whether others may be written beside a database that failed
// so, as beside one that can't be read.
func ofDatabase(err error) bool {
	if f := (*foreign)(nil); errors.As(err, &f) {
		return true
	}
	class := mysql.ClassOf(err)
	return class.OfServer() || class == mysql.Full || class == mysql.Denied || class == mysql.Missing
}

// readAll reads every database of every server at once. Databases that fail, or are
// not the config's, are left out and named by the error. The databases are in order
// of number. Once one server has answered, the others get this much longer; 0 means
// no limit.
func readAll(ctx context.Context, cfg tocsin.Config, servers []*mysql.Server, longer time.Duration) ([]database, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make([][]database, len(servers))
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			found[i], errs[i] = readServer(ctx, cfg, s)
			if longer > 0 && len(found[i]) > 0 {
				time.AfterFunc(longer, cancel)
			}
		})
	}
	wg.Wait()
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b database) int { return cmp.Compare(a.number, b.number) })
	all, others := agree(all)
	return all, errors.Join(append(errs, others)...)
}

// firstForeign shortens the errors when no database can be used: the first database
// that is not the config's stands for all.
func firstForeign(failed error) error {
	if f := (*foreign)(nil); errors.As(failed, &f) {
		return f
	}
	return failed
}

// readServer reads the databases of one server, until the whole server fails.
func readServer(ctx context.Context, cfg tocsin.Config, s *mysql.Server) (found []database, failed error) {
	for _, number := range s.Databases {
		d := database{server: s, want: want(cfg), number: number, name: cfg.Layout.Database(number), rows: map[uint64]row{}}
		rows, err := d.read(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
			if mysql.Unanswered(err) {
				return found, failed
			}
			continue
		}
		for _, r := range rows {
			d.rows[r.Number] = r
		}
		found = append(found, d)
	}
	return found, failed
}

// Stored is a policy as it stands in the databases.
type Stored struct {
	Policy
	Revision uint64    `json:"revision"` // of the type
	Changed  time.Time `json:"changed"`  // when it was last written, by the database's clock
}

// Load reads the stored policies, ordered by number: of each type the highest
// revision in the databases that answer and are the config's. It fails if there is no
// such database, and returns nil then, or if stored policies can't be read: the others
// stand beside the error, which names these. Zeros stay zero, see Policy.WithDefaults.
func Load(ctx context.Context, cfg tocsin.Config) ([]Policy, error) {
	latest, err := loadAll(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return decodeAll(latest)
}

// LoadStored is Load, with when each policy was last changed.
func LoadStored(ctx context.Context, cfg tocsin.Config) ([]Stored, error) {
	latest, err := loadAll(ctx, cfg)
	if err != nil {
		return nil, err
	}
	policies, err := decodeAll(latest)
	all := make([]Stored, len(policies))
	for i, p := range policies {
		all[i] = Stored{p, latest[p.Number].Revision, latest[p.Number].Modified}
	}
	return all, err
}

// loadAll reads the highest revision of each type.
func loadAll(ctx context.Context, cfg tocsin.Config) (map[uint64]row, error) {
	servers, err := openServers(cfg, 1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.CloseServers(servers) }()
	databases, failed := readAll(ctx, cfg, servers, stragglers)
	if len(databases) == 0 {
		return nil, firstForeign(failed)
	}
	return latestOf(databases), nil
}

// latestOf returns the highest revision of each type in the databases.
func latestOf(databases []database) map[uint64]row {
	latest := map[uint64]row{}
	for _, d := range databases {
		merge(latest, slices.Collect(maps.Values(d.rows)))
	}
	return latest
}

// merge takes what is newer into latest and reports whether anything was.
func merge(latest map[uint64]row, rows []row) bool {
	changed := false
	for _, r := range rows {
		if r.Revision > latest[r.Number].Revision {
			latest[r.Number] = r
			changed = true
		}
	}
	return changed
}

// decodeAll gives the policies that can be read, ordered by number, and an
// error that names the others.
func decodeAll(latest map[uint64]row) ([]Policy, error) {
	rows := slices.SortedFunc(maps.Values(latest), func(a, b row) int { return cmp.Compare(a.Number, b.Number) })
	policies := make([]Policy, 0, len(rows))
	var errs []error
	for _, r := range rows {
		p, err := r.decode()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		policies = append(policies, p)
	}
	return policies, errors.Join(errs...)
}
