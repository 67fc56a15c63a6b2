package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/operator"
)

// guard is who may read a page, and how. The zero value: everybody, in plain text.
type guard struct {
	token func() string // the present one; nil: none is wanted
	tls   *tls.Config   // nil: plain text
}

func newGuard(s config.StatusPage) (g guard, err error) {
	if g.token, err = s.TokenSource(); err != nil {
		return g, err
	}
	g.tls, err = s.ServerTLS()
	return g, err
}

// statusMux is the status page. Its two checks of health need no token: they tell nothing but yes and no.
// A header of the metrics names the node, as id returns it: an address may have gone to another one.
func statusMux(status http.Handler, registry *prometheus.Registry, token, id func() string) http.Handler {
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	mux.Handle("GET /metrics", tokened(token, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(operator.NodeHeader, id())
		metrics.ServeHTTP(w, r)
	})))
	mux.Handle("GET /status", tokened(token, status))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, r, status) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

// tokened lets requests with the token through.
func tokened(token func() string, h http.Handler) http.Handler {
	if token == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		want, got := sha256.Sum256([]byte(token())), sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="tocsin"`)
			http.Error(w, "this page wants a bearer token", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// byLocalName refuses requests over the loopback interface that name another host: a website whose name leads to 127.0.0.1 has a
// browser on this machine send them, and would read the answers.
func byLocalName(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if at != nil && at.IP.IsLoopback() && !isLocalName(r.Host) {
			http.Error(w, "this page answers to localhost and to addresses alone: ask for it by one of them", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLocalName reports whether a Host header is localhost or an address, with or without a port.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// ready answers with the code of the status page, and without its report.
func ready(w http.ResponseWriter, r *http.Request, status http.Handler) {
	v := &codeOnly{header: http.Header{}, code: http.StatusOK}
	status.ServeHTTP(v, r)
	w.WriteHeader(v.code)
	fmt.Fprintln(w, strings.ToLower(http.StatusText(v.code)))
}

// codeOnly keeps the code of an answer alone.
type codeOnly struct {
	header http.Header
	code   int
}

func (v *codeOnly) Header() http.Header         { return v.header }
func (v *codeOnly) Write(p []byte) (int, error) { return len(p), nil }
func (v *codeOnly) WriteHeader(code int)        { v.code = code }

// pprofMux has the profiles of net/http/pprof, which that package itself would show on every page of the process.
func pprofMux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// pageIdle is how long a connection may be unused: longer than Prometheus usually is between two scrapes.
const pageIdle = 2 * time.Minute

// page is a listener of pages; nil listener: there is none.
type page struct {
	guard
	listener net.Listener
}

// listen takes the address at once, so that a port in use is known before
// anything starts. "off" means no page.
func listen(address string, g guard) (page, error) {
	if address == config.Off {
		return page{}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return page{}, fmt.Errorf("status page: %w: free the port, or choose another with --listen or node.listen", err)
	}
	return page{g, l}, nil
}

// listenPprof is listen for profiles, which only this host may read. "" means none.
func listenPprof(address string) (page, error) {
	if address == "" {
		return page{}, nil
	}
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return page{}, usage("--pprof %q: want a loopback address with a port, such as 127.0.0.1:6060", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return page{}, fmt.Errorf("--pprof: %w", err)
	}
	return page{listener: l}, nil
}

// close frees the address of a page that never served.
func (p page) close() error {
	if p.listener == nil {
		return nil
	}
	return p.listener.Close()
}

// serve answers until ctx ends.
func (p page) serve(ctx context.Context, h http.Handler) error {
	if p.listener == nil {
		return nil
	}
	if p.token == nil {
		h = byLocalName(h)
	}
	s := &http.Server{
		Handler: h, TLSConfig: p.tls, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: pageIdle, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // strangers' handshakes and broken connections
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Shutdown(bounded) // what is cut off was a look at the status
	})
	serve := func() error { return s.Serve(p.listener) }
	if p.tls != nil {
		serve = func() error { return s.ServeTLS(p.listener, "", "") }
	}
	err := serve()
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
