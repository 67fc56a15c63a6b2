//go:build unix

package devserver

import (
	"errors"
	"fmt"
	"syscall"
)

// explainListen turns a failed listen into ErrPortInUse if that is the reason.
func explainListen(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return ErrPortInUse
	}
	return fmt.Errorf("cannot be listened on: %w", err)
}
