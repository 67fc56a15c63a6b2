package store

import "errors"

// Partial is the error beside a result that lacks what some servers hold. Its text has what went wrong on each.
type Partial struct {
	Servers []string // names of those that could not be asked in full
	All     bool     // these are all servers there are
	err     error
}

func (p *Partial) Error() string { return p.err.Error() }
func (p *Partial) Unwrap() error { return p.err }

// Lacking joins what went wrong by server into a Partial; nil if nothing did.
func Lacking(servers []string, errs []error) error {
	p := &Partial{}
	for i, err := range errs {
		if err != nil {
			p.Servers, p.err = append(p.Servers, servers[i]), errors.Join(p.err, err)
		}
	}
	if p.err == nil {
		return nil
	}
	p.All = len(p.Servers) == len(servers)
	return p
}
