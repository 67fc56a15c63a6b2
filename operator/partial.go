package operator

import "github.com/tocsinhq/tocsin/store"

// Partial is the error beside a result that lacks what some servers hold. Its text has what went wrong on each.
type Partial = store.Partial
