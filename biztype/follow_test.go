package biztype

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestThatNoServerTellsTheBizTypesIsLoggedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log devtest.Log
		f := &follower{Watcher: &Watcher{cfg: WatchConfig{Logger: log.Logger()}}}
		for range 150 {
			f.unreachable(errors.New("connection refused"))
			time.Sleep(time.Second)
		}
		f.recovered()
		f.recovered()
		blind, sees := log.Lines("no server tells the biz types; going on with those last read"), log.Lines("biz types can be read again")
		if len(blind) != 3 || len(sees) != 1 || blind[2]["suppressed"] != 59.0 {
			t.Errorf("logged %v", log.Lines())
		}
	})
}
