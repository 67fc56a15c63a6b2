package bench

import (
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/test/pullers"
)

// Pull is workers that ask nodes for tasks over HTTP, on the loopback address and in this process.
type Pull struct {
	Workers int  // 0: 1; at most 5000
	Max     int  // tasks that each asks for; 0: 1
	Greedy  int  // tasks that one more worker asks for at once; 0: there is none
	Last    bool // all ask the last node; else they are spread over the nodes
}

const maxWorkers = 5000

// pull is who asks for the tasks; nil: nobody does.
func (o Options) pull() *Pull {
	if o.Target == nil {
		return nil
	}
	return o.Target.Pull
}

func (p *Pull) validate(noMetrics bool) error {
	switch {
	case p == nil:
	case noMetrics:
		return wrong("workers that ask, and no metrics: these tell when all is settled")
	case p.Workers < 0 || p.Workers > maxWorkers:
		return wrong("%d workers: want 1 to %d", p.Workers, maxWorkers)
	case p.Max < 0 || p.Max > 100 || p.Greedy < 0 || p.Greedy > 100:
		return wrong("workers that ask for %d, and a greedy one for %d tasks: want 1 to 100", p.Max, p.Greedy)
	}
	return nil
}

// ask starts the workers, if there are to be any. taken is told of each task that one has.
func (f *fleet) ask(taken func(tocsin.Info)) {
	p := f.site.opts.pull()
	if p == nil {
		return
	}
	apis := f.apis
	if p.Last {
		apis = apis[len(apis)-1:]
	}
	f.crew = &pullers.Crew{BizType: plain.Name(), Taken: func(tasks []pullers.Task) {
		for _, t := range tasks {
			taken(tocsin.Info{JobID: t.JobID, ActionTime: t.DueTime})
		}
	}}
	for i := range max(p.Workers, 1) {
		f.crew.Workers = append(f.crew.Workers, &pullers.Worker{URL: apis[i%len(apis)], Max: max(p.Max, 1)})
	}
	if p.Greedy > 0 {
		f.crew.Workers = append(f.crew.Workers, &pullers.Worker{URL: apis[0], Max: p.Greedy})
	}
	f.crew.Start(f.Fleet)
}

// crewSettled reports whether the nodes have stored the outcomes of all tasks that workers got. The workers are told later: with their next
// tasks.
func (f *fleet) crewSettled() bool {
	return f.crew == nil || f.counted("tocsin_pull_settled_total") >= f.crew.Tasks()
}

// Pulled is what workers got.
type Pulled struct {
	Workers int     `json:"workers"` // without the greedy one
	Max     int     `json:"max"`     // tasks that each asked for
	Tasks   Spread  `json:"tasks"`   // of a worker
	Answers Spread  `json:"answers"` // of a worker, without empty ones
	Greedy  *Greedy `json:"greedy,omitempty"`
}

// Spread is what the workers with the least, in the middle and with the most got.
type Spread struct {
	Least  int `json:"least"`
	Median int `json:"median"`
	Most   int `json:"most"`
}

// Greedy is what the worker got that asked for more than the others.
type Greedy struct {
	Max     int `json:"max"`
	Tasks   int `json:"tasks"`
	Answers int `json:"answers"`
}

// pulled is what the workers have got so far; nil: there are none.
func (f *fleet) pulled() *Pulled {
	if f.crew == nil {
		return nil
	}
	p, workers := *f.site.opts.pull(), f.crew.Workers
	r := &Pulled{Workers: max(p.Workers, 1), Max: max(p.Max, 1)}
	if p.Greedy > 0 {
		tasks, answers := workers[len(workers)-1].Counts()
		r.Greedy, workers = &Greedy{p.Greedy, tasks, answers}, workers[:len(workers)-1]
	}
	var tasks, answers []int
	for _, w := range workers {
		t, a := w.Counts()
		tasks, answers = append(tasks, t), append(answers, a)
	}
	r.Tasks, r.Answers = spread(tasks), spread(answers)
	return r
}

func spread(all []int) Spread {
	slices.Sort(all)
	return Spread{all[0], all[len(all)/2], all[len(all)-1]}
}

// pulled prints what workers got.
func (l *lines) pulled(p *Pulled) {
	if p == nil {
		return
	}
	l.line("workers", "%d, each for %d tasks at a time: %d, %d, %d tasks, and %d, %d, %d answers (least, median, most)",
		p.Workers, p.Max, p.Tasks.Least, p.Tasks.Median, p.Tasks.Most, p.Answers.Least, p.Answers.Median, p.Answers.Most)
	if g := p.Greedy; g != nil {
		l.line("greedy", "one more, for %d tasks at a time: %d tasks, %d answers", g.Max, g.Tasks, g.Answers)
	}
}
