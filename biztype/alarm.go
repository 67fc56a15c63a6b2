package biztype

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/name"
)

// Bounds of an alarm.
const (
	minAlarmEvery = time.Minute
	maxAlarmEvery = 24 * time.Hour
	keptAlarm     = 48 * time.Hour // the least retention of alarms: the last one tells which tasks it was about
)

func (c *check) alarm(p Policy) {
	if p.Alarm == nil {
		return
	}
	c.Refuse(p.Alarm.To == "", "alarm.to", "the alarm needs the name of the biz type that delivers it: to")
	c.between("alarm.at_most_every", p.Alarm.AtMostEvery, minAlarmEvery, maxAlarmEvery)
	for i, on := range p.Alarm.On {
		c.Refuse(on != OnDead && on != OnMissed, "alarm.on", "alarm.on %q: use %s or %s", on, OnDead, OnMissed)
		c.Refuse(slices.Contains(p.Alarm.On[:i], on), "alarm.on", "alarm.on has %q twice", on)
	}
}

// alarmTarget checks the biz type that delivers the alarms of p. An alarm about an alarm would need one itself.
func (c *check) alarmTarget(p, to Policy) {
	const key = "alarm.to"
	kept := to.WithDefaults().Retention.D()
	switch {
	case to.Name == p.Name:
		c.Refuse(true, key, "its alarm is to itself: another biz type must deliver it")
	case to.Alarm != nil:
		c.Refuse(true, key, "its alarm is to %s, which has an alarm too: a biz type that delivers alarms has none", name.Shown(to.Name))
	default:
		c.Refuse(kept < keptAlarm, key, "its alarm is to %s, whose retention is %s: use at least %s", name.Shown(to.Name), kept, keptAlarm)
	}
}

func byName(policies []Policy) map[string]Policy {
	all := make(map[string]Policy, len(policies))
	for _, p := range policies {
		all[p.Name] = p
	}
	return all
}

// checkAlarms checks the alarms of policies that are to be stored against those that are stored: to whom they are, and whether
// a biz type that gets an alarm delivers those of others. Alarms between other biz types are not looked at.
func checkAlarms(databases []database, policies []Policy) error {
	stored, _ := decodeAll(latestOf(databases)) // one that can't be read is left out
	all, given := byName(stored), byName(policies)
	for name, p := range given {
		all[name] = p
	}
	var errs []error
	for _, p := range policies {
		errs = append(errs, checkAlarm(p, all))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, p := range stored {
		if _, again := given[p.Name]; !again && p.Alarm != nil {
			if _, changed := given[p.Alarm.To]; changed {
				errs = append(errs, checkAlarm(p, all))
			}
		}
	}
	return errors.Join(errs...)
}

// checkAlarm returns what is wrong with the target of an alarm.
func checkAlarm(p Policy, all map[string]Policy) error {
	if p.Alarm == nil {
		return nil
	}
	to, there := all[p.Alarm.To]
	if !there {
		return fmt.Errorf("biz type %s: its alarm is to %q, and there is no such biz type: apply it in the same file or before", p.Name, p.Alarm.To)
	}
	var c check
	if c.alarmTarget(p, to); len(c.Found) > 0 {
		return fmt.Errorf("biz type %s: %w", p.Name, c.Found[0].Err)
	}
	return nil
}
