package schedule

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// programs are that many programs, each with pools of its own, that start at once.
func programs(t *testing.T, first *site, n int) []*site {
	t.Helper()
	all := []*site{first}
	for len(all) < n {
		all = append(all, openSite(t, first.cfg))
	}
	return all
}

// Programs that start at once, with the same code, all create the schedules that they bring along: one of them does, and the
// others find what they want.
func TestTheSameDefinitionFromManyAtOnce(t *testing.T) {
	t.Parallel()
	all := programs(t, newSite(t), 8)
	db := session(t, "")
	for call, apply := range map[string]func(s *site, d Definition) (Verdict, error){
		"create": func(s *site, d Definition) (Verdict, error) {
			_, existing, err := s.CreateOnce(t.Context(), d)
			if existing {
				return Unchanged, err
			}
			return Created, err
		},
		"apply": func(s *site, d Definition) (Verdict, error) {
			done, err := s.Apply(t.Context(), []Definition{d, every(d.Name+".second", "1h")}, false)
			if err != nil {
				return "", err
			}
			return done[0].Verdict, err
		},
		"apply in a transaction": func(s *site, d Definition) (Verdict, error) {
			return inTransaction(t.Context(), db, sql.LevelRepeatableRead, s, d)
		},
		"apply in a transaction, read committed": func(s *site, d Definition) (Verdict, error) {
			return inTransaction(t.Context(), db, sql.LevelReadCommitted, s, d)
		},
	} {
		for round := range 4 {
			d := every(fmt.Sprintf("same.%d.%d", len(call), round), "1m")
			for _, step := range []Verdict{Created, Changed} {
				if step == Changed {
					if d.Payload = "new"; call == "create" {
						break
					}
				}
				verdicts, errs := devtest.AtOnce(len(all), func(i int) (Verdict, error) { return apply(all[i], d) })
				did := 0
				for i, err := range errs {
					if err != nil || verdicts[i] != step && verdicts[i] != Unchanged {
						t.Errorf("%s: %s, %v", call, verdicts[i], err)
					}
					if verdicts[i] == step {
						did++
					}
				}
				if did != 1 {
					t.Errorf("%s: %d have %s it", call, did, step)
				}
			}
			if got := all[0].get(d.Name); len(all[0].pending(got)) != 20 {
				t.Errorf("%s: %d runs are pending", call, len(all[0].pending(got)))
			}
		}
	}
}

// inTransaction applies a definition in a transaction of its own, which it repeats after a deadlock, and on MariaDB if a row is newer than the
// snapshot, as ApplyTx wants it.
func inTransaction(ctx context.Context, db *sql.DB, level sql.IsolationLevel, s *site, d Definition) (Verdict, error) {
	for {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return "", err
		}
		a, err := s.ApplyTx(ctx, tx, d)
		if err != nil {
			_ = tx.Rollback()
			if mysql.ClassOf(err) == mysql.Contended {
				continue
			}
			return "", err
		}
		return a.Verdict, tx.Commit()
	}
}

// Of different definitions of one name one wins, and the callers with others are told so, whichever database theirs is in.
func TestDifferentDefinitionsFromManyAtOnce(t *testing.T) {
	t.Parallel()
	all := programs(t, newSite(t), 6)
	for round := range 4 {
		name := fmt.Sprint("other.", round)
		made, errs := devtest.AtOnce(len(all), func(i int) (Schedule, error) {
			d := every(name, fmt.Sprintf("%dm", 1+i%3))
			return all[i].Create(t.Context(), d)
		})
		winner := all[0].get(name)
		for i, err := range errs {
			switch {
			case fmt.Sprintf("@every %dm", 1+i%3) == winner.Cron && (err != nil || made[i].ID != winner.ID):
				t.Errorf("%d wanted the one that is there: %v", i, err)
			case fmt.Sprintf("@every %dm", 1+i%3) != winner.Cron && !errors.Is(err, ErrExists):
				t.Errorf("%d wanted another one: %v", i, err)
			}
		}
	}
}
