package webhook

// NewRecent makes the Seen that a Receiver has by default.
func NewRecent() *recent { return &recent{ids: make(map[int64]map[string]bool)} }

// Len returns how many ids it remembers.
func (r *recent) Len() (n int) {
	for _, ids := range r.ids {
		n += len(ids)
	}
	return n
}
