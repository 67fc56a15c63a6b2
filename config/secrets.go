package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

var (
	reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	wholeRef  = regexp.MustCompile(`^` + reference.String() + `$`)
)

// expand replaces the references to the environment and reads the files. Its messages
// name variables and files, never their content.
func (f *File) expand(lookup func(string) (string, bool)) []problem {
	x := expansion{lookup: lookup}
	for i := range f.Servers {
		x.server(&f.Servers[i], fmt.Sprintf("$.servers[%d]", i))
		x.certificates(&f.Servers[i], fmt.Sprintf("$.servers[%d].tls", i))
	}
	x.whole(&f.Etcd.Username, "$.etcd.username")
	x.whole(&f.Etcd.Password, "$.etcd.password")
	x.whole(&f.Node.Status.Token, "$.node.status.token")
	return x.found
}

// expansion collects what went wrong.
type expansion struct {
	lookup func(string) (string, bool)
	found  []problem
}

func (x *expansion) server(s *Server, path string) {
	if strings.Contains(reference.ReplaceAllString(s.DSN, ""), "${") { // in the file itself; a value may contain it
		x.found = append(x.found, problem{path + ".dsn", errors.New("a reference to the environment is written ${NAME}; put a password that holds ${ into a variable")})
	}
	s.DSN = reference.ReplaceAllStringFunc(s.DSN, func(ref string) string {
		return x.variable(strings.Trim(ref, "${}"), path+".dsn")
	})
	if s.PasswordEnv == "" {
		return
	}
	password := x.variable(s.PasswordEnv, path+".password_env")
	dsn, err := mysql.WithPassword(s.DSN, password)
	if err != nil {
		x.found = append(x.found, problem{path + ".password_env", err})
	}
	s.DSN = dsn // what is wrong with it is told with the DSN
}

// certificates reads the files of a server's tls. Validation checks that cert and key
// come as a pair.
func (x *expansion) certificates(s *Server, path string) {
	if s.TLS.lacksHalf() {
		return
	}
	var err error
	if s.tls, err = s.TLS.load("tls"); err != nil {
		x.found = append(x.found, problem{path, err})
	}
}

// whole replaces a value that is a reference and nothing else.
func (x *expansion) whole(value *string, path string) {
	if m := wholeRef.FindStringSubmatch(*value); m != nil {
		*value = x.variable(m[1], path)
	}
}

func (x *expansion) variable(name, path string) string {
	value, ok := x.lookup(name)
	if !ok {
		x.found = append(x.found, problem{path, fmt.Errorf("environment variable %s is not set", name)})
	}
	return value
}
