package assign

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/devserver/etcdtest"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// sourcesOf parses the shipped files of a package that this module needs.
func sourcesOf(t *testing.T, path string) (files []*ast.File) {
	t.Helper()
	p, err := build.Import(path, ".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// An endpoint is judged by its form before anything connects to it.
func TestTheFormOfAnEndpoint(t *testing.T) {
	t.Parallel()
	for endpoint, well := range map[string]bool{
		"h:2379": true, "127.0.0.1:2379": true, "[::1]:2379": true, "http://h:2379": true, "https://h:2379": true, "https://h:2379/": true, "http://[fe80::1%eth0]:2379": true,
		"": false, "h": false, "h:": false, ":2379": false, "::1:2379": false, "h:0": false, "h:65536": false, "h:port": false, "h:2379/": false, "h:2379/x": false, "http://h": false,
		"https://h:2379/x": false, "https://h:2379?x": false, "https://u:p@h:2379": false, "ftp://h:2379": false, "unix:///x": false, "unix://h:2379": false, "dns:///h:2379": false,
		"h:2379,i:2379": false, " h:2379": false, "h:2379 ": false, "HTTP://h:2379": true, "http:h:2379": false, "//h:2379": false, "http:///h:2379": false,
	} {
		if err := CheckEndpoint(endpoint); (err == nil) != well {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// Each error of etcd's own list has its advice, and none is made up.
func TestEveryErrorOfEtcdHasItsAdvice(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, f := range sourcesOf(t, "go.etcd.io/etcd/api/v3/v3rpc/rpctypes") {
		ast.Inspect(f, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || len(call.Args) != 2 {
				return true
			}
			if name, is := call.Fun.(*ast.SelectorExpr); is && name.Sel.Name == "Error" {
				if lit, is := call.Args[1].(*ast.BasicLit); is {
					text, _ := strconv.Unquote(lit.Value)
					listed[text] = true
				}
			}
			return true
		})
	}
	if len(listed) < 60 {
		t.Fatalf("only %d errors are found in etcd's list", len(listed))
	}
	for text := range listed {
		if advice[text] == "" {
			t.Errorf("%q of etcd's list has no advice", text)
		}
	}
	for text := range advice {
		if !listed[text] {
			t.Errorf("%q is not in etcd's list", text)
		}
	}
	for code := codes.OK; !strings.HasPrefix(code.String(), "Code("); code++ {
		if int(code) >= len(adviceByCode) || code != codes.OK && adviceByCode[code] == "" {
			t.Errorf("the code %s of gRPC has no advice", code)
		}
	}
	for _, err := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrGRPCAuthFailed, fmt.Errorf("etcd x: %w", rpctypes.ErrAuthFailed)} {
		if got := Advice(err); got != doPassword {
			t.Errorf("%T: %q", err, got)
		}
	}
	for err, want := range map[error]string{nil: "", errors.New("of MySQL"): "", context.Canceled: "", status.Error(codes.Unimplemented, "unknown service"): doOther} {
		if got := Advice(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// listening accepts connections and has answer do something with each.
func listening(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// otherService is the address of a server of gRPC that is no etcd.
func otherService(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc, served := grpc.NewServer(), make(chan struct{})
	go func() { defer close(served); _ = rpc.Serve(l) }()
	t.Cleanup(func() { rpc.Stop(); <-served })
	return l.Addr().String()
}

// What is wrong between a program and a real etcd, or what answers in its place.
func TestTheAdviceFitsTheCause(t *testing.T) {
	t.Parallel()
	authority, stranger := devtest.NewAuthority(t), devtest.NewAuthority(t)
	secure := startSecureEtcd(t, authority)
	good, plain := trusting(t, authority, authority), devtest.Etcd(t)
	etcdtest.WantPasswords(t, dialAs(t, EtcdConfig{Endpoints: []string{secure.Endpoint()}, TLS: good}), "shop")
	guarded := startEtcd(t, &devserver.EtcdConfig{}).Endpoint()
	etcdtest.WantPasswords(t, dialAs(t, EtcdConfig{Endpoints: []string{guarded}}), "shop")
	old := good.Clone()
	old.MaxVersion, old.MinVersion = tls.VersionTLS10, tls.VersionTLS10
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	closes := listening(t, func(net.Conn) {})
	greets := listening(t, func(c net.Conn) {
		_, _ = c.Write([]byte("\x4a\x00\x00\x00\x0a8.0.30\x00 a greeting of another protocol"))
		_, _ = c.Read(make([]byte, 100))
	})
	for name, c := range map[string]struct {
		cfg EtcdConfig
		do  string
	}{
		"nothing listens":                  {EtcdConfig{Endpoints: []string{"127.0.0.1:1"}}, doReach},
		"a name that is none":              {EtcdConfig{Endpoints: []string{"etcd.invalid:2379"}}, etcd.Do(loop.WayName)},
		"no port":                          {EtcdConfig{Endpoints: []string{"127.0.0.1"}}, etcd.Do(loop.WayForm)},
		"a URL that is none":               {EtcdConfig{Endpoints: []string{"http://%zz"}}, etcd.Do(loop.WayForm)},
		"plain to TLS":                     {EtcdConfig{}, etcd.Do(loop.WaySecure)},
		"TLS to plain":                     {EtcdConfig{Endpoints: []string{plain}, TLS: good}, doPlain},
		"an unknown authority":             {EtcdConfig{TLS: trusting(t, stranger, authority)}, etcd.Do(loop.WayCA)},
		"no certificate of ours":           {EtcdConfig{TLS: trusting(t, authority, nil)}, etcd.Do(loop.WayOurs)},
		"our certificate of a stranger":    {EtcdConfig{TLS: trusting(t, authority, stranger)}, etcd.Do(loop.WayOurs)},
		"a version of TLS that is too old": {EtcdConfig{TLS: old}, etcd.Do(loop.WayVersions)},
		"a wrong password":                 {EtcdConfig{TLS: good, Username: "shop", Password: "no"}, doPassword},
		"an unknown user":                  {EtcdConfig{TLS: good, Username: "nobody", Password: "no"}, doPassword},
		"no user":                          {EtcdConfig{Endpoints: []string{guarded}}, doUser},
		"a password, in plain text":        {EtcdConfig{Endpoints: []string{guarded}, Username: "shop", Password: "no"}, doPassword},
		"our certificate's name as a user": {EtcdConfig{TLS: good}, doGrant},
		"keys of another cluster":          {EtcdConfig{TLS: good, Username: "shop", Password: "pass-shop"}, doGrant},
		"a web server":                     {EtcdConfig{Endpoints: []string{web.Listener.Addr().String()}}, doOther},
		"another server of gRPC":           {EtcdConfig{Endpoints: []string{otherService(t)}}, doOther},
		"another protocol":                 {EtcdConfig{Endpoints: []string{greets}}, doOther},
		"a proxy with nothing behind":      {EtcdConfig{Endpoints: []string{closes}}, etcd.Do(loop.WayClosed)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.cfg.Timeout = 4 * time.Second; c.cfg.Endpoints == nil {
				c.cfg.Endpoints = []string{secure.Endpoint()}
			}
			client, err := Dial(t.Context(), c.cfg)
			if err == nil {
				_, err = client.Get(t.Context(), "/other/x")
				_ = client.Close()
			}
			if got := Advice(err); err == nil || got != c.do {
				t.Errorf("%v: %q, want %q", err, got, c.do)
			}
		})
	}
}

// Reads go on while an alarm keeps every node from writing, so the alarm itself is asked for.
func TestAnAlarmOfEtcdIsSeen(t *testing.T) {
	t.Parallel()
	client := dialAs(t, EtcdConfig{Endpoints: []string{startEtcd(t, &devserver.EtcdConfig{}).Endpoint()}})
	r := &Registry{client: client, cluster: "c", tables: 1}
	if err := r.Alarms(t.Context()); err != nil {
		t.Error(err)
	}
	raise := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	if err := r.Alarms(t.Context()); Advice(err) != doSpace {
		t.Errorf("%v: %q", err, Advice(err))
	}
	if _, err := client.Put(t.Context(), "k", "v"); Advice(err) != doSpace {
		t.Errorf("a write: %v: %q", err, Advice(err))
	}
}
