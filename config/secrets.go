package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/yamlfile"
	"github.com/tocsinhq/tocsin/outbox"
)

var (
	reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	wholeRef  = regexp.MustCompile(`^` + reference.String() + `$`)
)

// expand replaces the references to the environment and reads the files. Its messages
// name variables and files, never their content.
func (f *File) expand(lookup func(string) (string, bool)) yamlfile.Faults {
	x := expansion{lookup: lookup}
	for i := range f.Servers {
		s, path := &f.Servers[i], fmt.Sprintf("servers[%d]", i)
		s.DSN = x.dsn(s.DSN, s.PasswordEnv, path)
		s.tls = x.certificates(s.TLS, path+".tls")
	}
	for i := range f.Outboxes {
		o, path := &f.Outboxes[i], fmt.Sprintf("outboxes[%d]", i)
		o.DSN = x.dsn(o.DSN, o.PasswordEnv, path)
		o.tls = x.certificates(o.TLS, path+".tls")
	}
	x.brokers(f)
	x.whole(&f.Etcd.Username, "etcd.username")
	x.whole(&f.Etcd.Password, "etcd.password")
	x.whole(&f.Node.Status.Token, "node.status.token")
	x.whole(&f.Console.Key, "console.key")
	if p := f.Console.Proxy; p != nil {
		x.whole(&p.Secret, "console.proxy.secret")
	}
	return x.Faults
}

// expansion replaces references, and collects what goes wrong.
type expansion struct {
	lookup func(string) (string, bool)
	yamlfile.Faults
}

// dsn replaces the references in a DSN, and puts in the password of a variable of its own.
func (x *expansion) dsn(dsn, passwordEnv, path string) string {
	if strings.Contains(reference.ReplaceAllString(dsn, ""), "${") { // in the file itself; a value may contain it
		x.Note(path+".dsn", errors.New("a reference to the environment is written ${NAME}; put a password that holds ${ into a variable"))
	}
	dsn = reference.ReplaceAllStringFunc(dsn, func(ref string) string {
		return x.variable(strings.Trim(ref, "${}"), path+".dsn")
	})
	if passwordEnv == "" {
		return dsn
	}
	password := x.variable(passwordEnv, path+".password_env")
	with, err := withPassword(dsn, password)
	x.Note(path+".password_env", err)
	return with // what is wrong with it is told with the DSN
}

// certificates reads the files of a connection's tls. Validation checks that cert and key
// come as a pair.
func (x *expansion) certificates(files TLS, path string) *tls.Config {
	if files.lacksHalf() {
		return nil
	}
	cfg, err := files.load("tls")
	x.Note(path, err)
	return cfg
}

// whole replaces a value that is a reference and nothing else.
func (x *expansion) whole(value *string, path string) {
	if m := wholeRef.FindStringSubmatch(*value); m != nil {
		*value = x.variable(m[1], path)
	}
}

func (x *expansion) variable(name, path string) string {
	value, ok := x.lookup(name)
	x.Refuse(!ok, path, "environment variable %s is not set", name)
	return value
}

// withPassword puts a password into a DSN, or into a URL of PostgreSQL.
func withPassword(dsn, password string) (string, error) {
	if !(outbox.Config{DSN: dsn}).OnPostgreSQL() {
		return mysql.WithPassword(dsn, password)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn, errors.New("the DSN is no URL") // the error quotes it
	}
	if _, has := u.User.Password(); has {
		return dsn, errors.New("the dsn holds a password too: use one of them")
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String(), nil
}
