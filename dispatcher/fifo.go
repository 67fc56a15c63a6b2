package dispatcher

// fifo holds ready tasks in order of arrival. The zero value is empty.
type fifo struct {
	items []*task
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

// at returns the i-th task, in order.
func (f *fifo) at(i int) *task { return f.items[f.head+i] }

func (f *fifo) push(tasks []*task) { f.items = append(f.items, tasks...) }

// pop appends up to n tasks to into.
func (f *fifo) pop(n int, into []*task) []*task {
	n = min(n, f.len())
	into = append(into, f.items[f.head:f.head+n]...)
	clear(f.items[f.head : f.head+n])
	f.head += n
	f.shift()
	return into
}

// shift moves what is left to the front once half of the room is wasted, so
// that the array does not grow without end.
func (f *fifo) shift() {
	if f.head*2 < len(f.items) {
		return
	}
	n := copy(f.items, f.items[f.head:])
	clear(f.items[n:])
	f.items, f.head = f.items[:n], 0
}

// remove appends the tasks that match to taken and keeps the others in order.
func (f *fifo) remove(match func(*task) bool, taken []*task) []*task {
	kept := f.items[:f.head]
	for _, t := range f.items[f.head:] {
		if match(t) {
			taken = append(taken, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(f.items[len(kept):])
	f.items = kept
	return taken
}
