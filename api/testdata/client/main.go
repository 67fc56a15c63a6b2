// Command client adds, finds and cancels a task through the HTTP API, and ends with code 1 if an answer is not as it should
// be. Its client is generated from openapi.yaml: see TestAGeneratedClient.
//
//	client http://127.0.0.1:8481 TOKEN
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	ctx := context.Background()
	bearer := WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	})
	c := must(NewClientWithResponses(os.Args[1], bearer))
	bizID, due, payload, dedup := "42", time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC), `{"order":42}`, "close"
	task := NewTask{BizType: "order.close", BizId: &bizID, DueTime: &due, Payload: &payload, DedupKey: &dedup}

	added := must(c.AddTaskWithResponse(ctx, task))
	want("add", added.JSON201 != nil, added.Body)
	id := added.JSON201.JobId

	again := must(c.AddTaskWithResponse(ctx, task))
	want("add again", again.JSON200 != nil && again.JSON200.Existing && again.JSON200.JobId == id, again.Body)

	got := must(c.GetTaskWithResponse(ctx, id))
	want("get", got.JSON200 != nil, got.Body)
	want("get", got.JSON200.DueTime.Equal(due) && got.JSON200.Payload == payload && got.JSON200.Status == Pending, got.Body)

	list := must(c.ListTasksWithResponse(ctx, &ListTasksParams{BizId: &bizID}))
	want("list", list.JSON200 != nil && len(list.JSON200.Tasks) == 1 && list.JSON200.Tasks[0].JobId == id, list.Body)

	cancelled := must(c.CancelTaskWithResponse(ctx, id))
	want("cancel", cancelled.JSON200 != nil && cancelled.JSON200.Status == Cancelled, cancelled.Body)

	none := must(c.GetTaskWithResponse(ctx, "1"))
	want("get none", none.ApplicationproblemJSON404 != nil && none.ApplicationproblemJSON404.Code == "not_found", none.Body)
}

// must returns the answer to a call, and ends the program if there is none.
func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}

// want ends the program unless the answer to a call is as it should be.
func want(call string, ok bool, body []byte) {
	if !ok {
		log.Fatalf("%s: unexpected answer: %s", call, body)
	}
}
