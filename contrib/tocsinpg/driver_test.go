package tocsinpg

import (
	"crypto/tls"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsinhq/tocsin/outbox"
)

// A DSN without sslmode would try without TLS too.
func TestTLSOfTheConfigIsUsedForEveryAddress(t *testing.T) {
	t.Parallel()
	for _, parameter := range []string{"", "?sslmode=disable", "?sslmode=allow"} {
		c, err := settings(outbox.Config{DSN: "postgres://u@h1:5432,h2:5433/shop" + parameter, TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
		if err != nil {
			t.Fatal(err)
		}
		all := append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
		if len(all) != 2 {
			t.Fatalf("%s: %d addresses, want 2", parameter, len(all))
		}
		for i, host := range []string{"h1", "h2"} {
			if a := all[i]; a.Host != host || a.TLSConfig == nil || a.TLSConfig.ServerName != host || a.TLSConfig.MinVersion != tls.VersionTLS13 || a.TLSConfig.InsecureSkipVerify {
				t.Errorf("%s: %+v", parameter, a)
			}
		}
	}
}

func TestNoParameterOfTheDSNLetsARelayUseAStandby(t *testing.T) {
	t.Parallel()
	for _, attributes := range []string{"any", "read-only", "standby", "prefer-standby", "primary"} {
		c, err := settings(outbox.Config{DSN: "postgres://u@h/shop?application_name=mine&lock_timeout=1&target_session_attrs=" + attributes})
		if err != nil {
			t.Fatal(err)
		}
		if reflect.ValueOf(c.ValidateConnect).Pointer() != reflect.ValueOf(pgconn.ValidateConnectTargetSessionAttrsReadWrite).Pointer() {
			t.Errorf("%s: connections are not asked whether they take writes", attributes)
		}
		if c.RuntimeParams["application_name"] != "mine" || c.RuntimeParams["lock_timeout"] != "1000" {
			t.Errorf("%v", c.RuntimeParams)
		}
	}
}
