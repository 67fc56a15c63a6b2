package dispatcher

// Guest admits tables that another node of the group looks at first, where nobody owns tables (Config.ClaimEach). Rows
// that are offered there start a quarter of a second after they are due, or after they were found: by then that node
// has claimed them, if it can. Admit ends it.
func (d *Dispatcher) Guest(tables []int) {
	for index, numbers := range d.byServer(tables) {
		s := d.servers[index]
		s.mu.Lock()
		for n := range numbers {
			t := s.known(n)
			t.admitted, t.guest = true, true
		}
		s.mu.Unlock()
	}
}

// guest reports whether another node looks at the table first. Called under s.mu.
func (s *server) guest(number int) bool {
	t := s.tables[number]
	return t != nil && t.guest
}
