package contest

import "runtime/debug"

// Library is the version of a module in this program, "unknown" of one that is
// not in it.
func Library(path string) string {
	info, _ := debug.ReadBuildInfo() // nil where there is none
	if info == nil {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}
