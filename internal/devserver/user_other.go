//go:build !unix

package devserver

import "os/exec"

// otherUser does nothing where no user is root.
func otherUser(string, ...*exec.Cmd) error { return nil }
