package ddl

import "testing"

// TestRetireNeedsTheRightsOfItsRole gives a user the rights of the role move one after the other: without the last, the
// step is refused, names the right, and goes on where it stood once the user has it.
func TestRetireNeedsTheRightsOfItsRole(t *testing.T) {
	t.Parallel()
	r := newRemoval(t)
	admin := r.old
	r.old = limited(t, admin) // SELECT and INSERT
	grant := func(rights, on string) {
		execute(t, admin, "GRANT "+rights+" ON $1."+on+" TO '"+admin.Layout.Prefix+"'@'%'")
	}
	r.refused((*Move).Retire, "UPDATE command denied", r.name+" on server db1")
	grant("UPDATE", "layout")
	for _, right := range []string{"DROP", "ALTER", "CREATE"} {
		r.refused((*Move).Retire, right, "denied", "rename owner of "+r.name)
		grant(right, "*")
	}
	r.must((*Move).Retire)
	r.must((*Move).Undo)
	verified(t, admin)
}
