//go:build !unix

package devserver

// explainListen takes every failed listen for a port in use.
func explainListen(error) error { return ErrPortInUse }
