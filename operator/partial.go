package operator

import "github.com/tocsinhq/tocsin/store"

// Partial is the error beside an incomplete result. Its text has what went wrong on each server.
type Partial = store.Partial
