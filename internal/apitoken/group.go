package apitoken

import (
	"errors"
	"fmt"
	"regexp"
	"unicode"
	"unicode/utf8"
)

// Group is what the people of a group may do in the console, if a proxy logs them in.
type Group struct {
	Name     string   `yaml:"group"`     // as the proxy names it; no comma
	Scope    Scope    `yaml:"scope"`     // read, write or operate
	BizTypes []string `yaml:"biz_types"` // names, in which * stands for any text; none: no biz type
}

// groupForm is a name that a list with commas can hold, with no space at either end.
var groupForm = regexp.MustCompile(`^[^\s,](?:[^,]*[^\s,])?$`)

// Check returns what is wrong with a group of the config, in one line.
func (g Group) Check() error {
	if !groupForm.MatchString(g.Name) || !Readable(g.Name) {
		return fmt.Errorf("group %q: want a name without commas, without spaces at its ends, and of visible characters", g.Name)
	}
	return checkRights("group "+g.Name, []Scope{Read, Write, Operate}, g.Scope, g.BizTypes)
}

// Readable reports whether a text is UTF-8 whose characters can all be seen, so that no two names look the same.
func Readable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return false
		}
	}
	return utf8.ValidString(text)
}

// CheckGroups checks groups: each, and that no two have one name. The error has a line for each that is wrong.
func CheckGroups(groups []Group) error {
	seen := map[string]bool{}
	var errs []error
	for _, g := range groups {
		if err := g.Check(); err != nil {
			errs = append(errs, err)
		} else if seen[g.Name] {
			errs = append(errs, fmt.Errorf("group %s: the group stands here twice", g.Name))
		}
		seen[g.Name] = true
	}
	return errors.Join(errs...)
}

// GroupID begins the ids of logins, which no token has.
const GroupID = "group "

// Login returns what somebody of the group may do. Its requests count in the rate of the group, since tokens have a rate each and people
// would be too many.
func (g Group) Login(user string) Token {
	return Token{ID: GroupID + g.Name, Name: user, Scope: g.Scope, BizTypes: g.BizTypes}
}
