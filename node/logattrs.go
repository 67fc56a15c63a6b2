package node

import (
	"context"
	"log/slog"
)

// LogAttrs returns what a log line of a delivery should name: biz_type, job_id, biz_id,
// biz_key (if the task has one) and attempt (the first is 1) of the task under a
// handler's context, or one derived from it. For a batch of several tasks these are
// biz_type, tasks (their number) and job_ids. It returns nil for any other context, and
// once the handler has returned.
func LogAttrs(ctx context.Context) []slog.Attr {
	tasks := Tasks(ctx)
	if len(tasks) == 0 {
		return nil
	}
	t := tasks[0]
	if len(tasks) == 1 {
		attrs := []slog.Attr{slog.String("biz_type", t.BizType), slog.String("job_id", t.JobID.String()), slog.Uint64("biz_id", t.BizID)}
		if t.BizKey != "" {
			attrs = append(attrs, slog.String("biz_key", t.BizKey))
		}
		return append(attrs, slog.Int("attempt", t.Attempts+1))
	}
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.JobID.String()
	}
	return []slog.Attr{slog.String("biz_type", t.BizType), slog.Int("tasks", len(tasks)), slog.Any("job_ids", ids)}
}

// LogHandler passes lines to next, with LogAttrs if they are logged with a handler's
// context: after slog.SetDefault(slog.New(node.LogHandler(h))), a line of
// slog.InfoContext names the task that it concerns.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, line slog.Record) error {
	if attrs := LogAttrs(ctx); attrs != nil {
		line = line.Clone()
		line.AddAttrs(attrs...)
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}
