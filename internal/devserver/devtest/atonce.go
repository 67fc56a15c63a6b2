package devtest

import "sync"

// AtOnce calls fn for 0 to n-1, all from the same moment, and returns what the calls returned.
func AtOnce[T any](n int, fn func(i int) (T, error)) ([]T, []error) {
	results, errs := make([]T, n), make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			results[i], errs[i] = fn(i)
		})
	}
	close(start)
	all.Wait()
	return results, errs
}
