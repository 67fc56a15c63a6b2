package node

import (
	"fmt"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAHandlerThatGetsNoTaskIsLoggedWheneverThatChanges(t *testing.T) {
	t.Parallel()
	hook := &biztype.Webhook{URL: "http://127.0.0.1:1/"}
	var log devtest.Log
	r, _ := newDesk(t, Config{}, &log)
	for _, step := range []struct {
		policies []biztype.Policy
		says     string
	}{
		{nil, "a handler gets no task: its biz type has no policy: apply one with `tocsin biz apply`"},
		{nil, ""},
		{[]biztype.Policy{{Name: "order.close", Group: "other"}}, "a handler gets no task: the policy of its biz type names group other, and this node is in group callback: change the node's Group or the policy's"},
		{[]biztype.Policy{{Name: "order.close"}}, "a handler gets tasks now: <nil>"},
		{[]biztype.Policy{{Name: "order.close"}}, ""},
		{[]biztype.Policy{{Name: "order.close", Webhook: hook}}, "a handler gets no task: the policy of its biz type sends the tasks to a callback: remove webhook from the policy, or the handler from the program"},
	} {
		before := len(log.Lines())
		r.set(step.policies)
		got := ""
		for _, line := range log.Lines()[before:] {
			got += fmt.Sprintf("%s: %v", line["message"], line["why"])
			if line["biz_type"] != "order.close" {
				t.Errorf("logged %v", line)
			}
		}
		if got != step.says {
			t.Errorf("%v: logged %q, want %q", step.policies, got, step.says)
		}
		if idle := r.without(); len(idle) == 0 != (len(step.policies) == 1 && step.policies[0].Group == "" && step.policies[0].Webhook == nil) {
			t.Errorf("%v: idle are %v", step.policies, idle)
		}
	}
}
