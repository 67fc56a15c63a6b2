package tocsinpg_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/pgxpool" // of the guide

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// blocks returns the blocks of a kind in a page of docs.
func blocks(t *testing.T, page, kind string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

func TestTheStatementsOfThePageAboutSQL(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	s.relay(s.config(&log))
	all := blocks(t, "sql.md", "postgresql")
	if len(all) != 3 {
		t.Fatalf("%d blocks, want 3", len(all))
	}
	conn := s.pgx()
	for i, want := range []string{`{"reason":"unpaid"} pending 0`, `{"reason":"unpaid"} pending 1`, `{"reason":"unpaid"} cancelled 1`} {
		if _, err := conn.PgConn().Exec(t.Context(), all[i]).ReadAll(); err != nil {
			t.Fatalf("%s: %v", all[i], err)
		}
		s.Await(want, func() bool {
			infos, err := s.Client.List(t.Context(), 120881)
			return err == nil && len(infos) == 1 && infos[0].Payload+" "+infos[0].Status.String()+" "+string(rune('0'+infos[0].Version)) == want
		})
	}
}

func TestTheBlocksOfTheGuideCompile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.go")
	if err := os.WriteFile(file, []byte(`package shop

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
)

type Order struct{}

var OrderClose = tocsin.Define[Order]("order.close")

`+strings.Join(blocks(t, "go.md", "go pgx"), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
