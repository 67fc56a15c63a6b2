package tocsin

import "context"

// noContext refuses a nil context: the pool of connections would panic and leave its
// lock taken.
func noContext(ctx context.Context) error {
	if ctx == nil {
		return refuse(ErrInvalid, "the context is nil: pass context.Background() if there is no other")
	}
	return nil
}
