package health

// Condition says whether a database can be used.
type Condition string

// The conditions.
const (
	Usable      Condition = "usable"
	Wrong       Condition = "wrong"       // statements to it are refused
	Unreachable Condition = "unreachable" // its server does not answer
)

// Database is what the node knows about one database.
type Database struct {
	Number int       `json:"number"`
	Name   string    `json:"name"`   // toc_6
	Server string    `json:"server"` // its name in the config
	Is     Condition `json:"condition"`
	Why    string    `json:"why,omitempty"` // one sentence: why it can't be used, or what is wrong although it can
}

// State is the state of all databases, by number. It is never changed in place.
type State []Database

// Unusable returns the numbers of the databases that can't be used, ascending.
func (s State) Unusable() []int { return s.that(func(d Database) bool { return d.Is != Usable }) }

// Wrong returns the numbers of the unusable databases whose server answers.
func (s State) Wrong() []int { return s.that(func(d Database) bool { return d.Is == Wrong }) }

func (s State) that(match func(Database) bool) []int {
	var numbers []int
	for _, d := range s {
		if match(d) {
			numbers = append(numbers, d.Number)
		}
	}
	return numbers
}

// Sick returns the databases that can't be used or have a fault.
func (s State) Sick() []Database {
	sick := []Database{} // an empty list in JSON, not null
	for _, d := range s {
		if d.Why != "" {
			sick = append(sick, d)
		}
	}
	return sick
}
