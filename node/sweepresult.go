package node

import "github.com/tocsinhq/tocsin/sweeper"

// SweepResult counts what a sweep found and did.
type SweepResult = sweeper.Result
