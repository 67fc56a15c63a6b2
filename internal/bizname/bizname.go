// Package bizname is the authority for what a biz type may be called: clients,
// handlers and policies all ask it.
package bizname

import "regexp"

// Rule says what a name is made of, for errors.
const Rule = "use lower-case letters, digits, '.', '_' and '-', at most 64, a letter or digit first"

var form = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Valid reports whether a biz type may have the name.
func Valid(name string) bool { return form.MatchString(name) }
