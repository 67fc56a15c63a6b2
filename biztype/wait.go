package biztype

import "time"

// Wait says how long to wait after the n-th failed attempt, n from 1. A ladder
// gives its n-th step, and its last one for ever; otherwise the back-off
// doubles from Base to Max and draws from the upper half. rnd gives a number in
// [0, 1) as rand.Float64 does. It is pure, and fills in defaults by itself.
func (p Policy) Wait(n int, rnd func() float64) time.Duration {
	n = max(n, 1)
	if len(p.Ladder) > 0 {
		return p.Ladder[min(n, len(p.Ladder))-1].D()
	}
	b := p.WithDefaults().Backoff
	full := doubled(b.Base.D(), b.Max.D(), n-1)
	half := full / 2
	return half + time.Duration(rnd()*float64(full-half))
}

// doubled gives min(limit, base * 2^times) without overflow.
func doubled(base, limit time.Duration, times int) time.Duration {
	for range times {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}

// WithDefaults fills in what is zero. A stored policy keeps its zeros, so that
// it follows the defaults of the program that reads it.
func (p Policy) WithDefaults() Policy {
	if p.Webhook != nil && p.Group == "" {
		p.Group = CallbackGroup
	}
	fill(&p.Timeout, DefaultTimeout)
	fill(&p.Retention, DefaultRetention)
	fill(&p.Backoff.Base, DefaultBackoffBase)
	fill(&p.Backoff.Max, max(DefaultBackoffMax, p.Backoff.Base.D()))
	if p.Alarm != nil {
		alarm := *p.Alarm // the caller's stays as it is
		fill(&alarm.AtMostEvery, DefaultAlarmEvery)
		p.Alarm = &alarm
	}
	if p.Attempts == 0 {
		p.Attempts = DefaultAttempts
	}
	if p.Concurrency == 0 {
		p.Concurrency = DefaultConcurrency
	}
	return p
}

func fill(d *Duration, value time.Duration) {
	if *d == 0 {
		*d = Duration(value)
	}
}
