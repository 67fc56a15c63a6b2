package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestLogTimesHaveMilliseconds(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"json": `^\{"level":"info","time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)","message":"node runs"\}\n$`,
		"text": `\d\d:\d\d:\d\d\.\d{3}.* .*INF.* .*node runs`,
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		log := (&app{err: file}).logger("info", format)
		log.Info().Msg("node runs")
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(file.Name())
		if err != nil || !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: logged %q, %v", format, text, err)
		}
	}
}
