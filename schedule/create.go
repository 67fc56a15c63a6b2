package schedule

import (
	"context"
	"errors"
)

// Create stores a new schedule, active, and makes its first runs. If a schedule has the name and the same definition, Create
// changes nothing and returns that schedule, in whatever state it is; so many processes may create one schedule when they start.
// If its definition differs, the error is ErrExists. One that has no fire time left, as its end is past, is ErrInvalid.
func (s *Schedules) Create(ctx context.Context, d Definition) (Schedule, error) {
	made, _, err := s.CreateOnce(ctx, d)
	return made, err
}

// CreateOnce is Create, and reports whether the schedule was there before.
func (s *Schedules) CreateOnce(ctx context.Context, d Definition) (made Schedule, existing bool, err error) {
	made, err = through(ctx, s, "create", d.Name, d.BizType, func(ctx context.Context) (made Schedule, err error) {
		made, existing, err = s.createOnce(ctx, d)
		return made, err
	})
	return made, existing, err
}

func (s *Schedules) createOnce(ctx context.Context, d Definition) (made Schedule, existing bool, err error) {
	if err := d.Validate(); err != nil {
		return Schedule{}, false, err
	}
	types, err := s.types(ctx)
	if err != nil {
		return Schedule{}, false, err
	}
	for range insertTries {
		found, err := s.named(ctx, types, d.Name)
		there := found[d.Name]
		switch {
		case errors.Is(err, ErrAmbiguous), there != nil && len(differences(there.Definition, d)) > 0: // two, if others are being created at this moment
			return Schedule{}, false, exists(d.Name)
		case err != nil:
			return Schedule{}, false, err
		case there != nil:
			return there.Schedule, true, nil
		}
		r, err := s.create(ctx, place{types: types}, d)
		if errors.Is(err, ErrExists) { // created since it was looked for, perhaps by a process that runs the same code
			continue
		}
		if err != nil {
			return Schedule{}, false, err
		}
		all := []Applied{{Name: d.Name, Verdict: Created, ID: r.ID}}
		if s.alone(ctx, types, all); all[0].Err != nil {
			return Schedule{}, false, all[0].Err
		}
		return r.Schedule, false, nil
	}
	return Schedule{}, false, exists(d.Name)
}
