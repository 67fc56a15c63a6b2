package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/api/testdata/client"
)

// A program that is generated from openapi.yaml adds, finds and cancels a task.
func TestAGeneratedClient(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	bearer := client.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+s.tokens["write"])
		return nil
	})
	c, err := client.NewClientWithResponses(s.url, bearer)
	if err != nil {
		t.Fatal(err)
	}
	bizID, due, payload, dedup := "42", time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC), `{"order":42}`, "close"
	task := client.NewTask{BizType: "order.close", BizId: &bizID, DueTime: &due, Payload: &payload, DedupKey: &dedup}
	added, err := c.AddTaskWithResponse(t.Context(), task)
	if err != nil || added.JSON201 == nil {
		t.Fatalf("%v: %s", err, added.Body)
	}
	id := added.JSON201.JobId
	again, err := c.AddTaskWithResponse(t.Context(), task)
	if err != nil || again.JSON200 == nil || !again.JSON200.Existing || again.JSON200.JobId != id {
		t.Errorf("%v: %s", err, again.Body)
	}
	found, err := c.GetTaskWithResponse(t.Context(), id)
	if err != nil || found.JSON200 == nil || !found.JSON200.DueTime.Equal(due) || found.JSON200.Payload != payload || found.JSON200.Status != client.Pending {
		t.Errorf("%v: %s", err, found.Body)
	}
	list, err := c.ListTasksWithResponse(t.Context(), &client.ListTasksParams{BizId: &bizID})
	if err != nil || list.JSON200 == nil || len(list.JSON200.Tasks) != 1 || list.JSON200.Tasks[0].JobId != id {
		t.Errorf("%v: %s", err, list.Body)
	}
	cancelled, err := c.CancelTaskWithResponse(t.Context(), id)
	if err != nil || cancelled.JSON200 == nil || cancelled.JSON200.Status != client.Cancelled {
		t.Errorf("%v: %s", err, cancelled.Body)
	}
	none, err := c.GetTaskWithResponse(t.Context(), "1")
	if err != nil || none.ApplicationproblemJSON404 == nil || none.ApplicationproblemJSON404.Code != "not_found" {
		t.Errorf("%v: %s", err, none.Body)
	}
}

func TestTheGeneratedClientIsThatOfOpenAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("testdata/client/openapi.sha256")
	if sum := sha256.Sum256(text); err != nil || !strings.HasPrefix(string(kept), hex.EncodeToString(sum[:])+" ") {
		t.Errorf("%v: openapi.yaml has changed since the client was made: run `make openapi`", err)
	}
}
