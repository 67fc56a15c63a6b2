package assign

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Marks of databases are kept in etcd too, so that an older copy is recognised even if all databases were restored:
//
//	/{cluster}/marks/{identity}    {"marks": {"3": 1790000000000}}
//
// The key has no lease. An etcd that was wiped gets it again from the next node.

// keepWhen is how far the marks in etcd may lag before they are written again.
const keepWhen = 30 * time.Second

// marksRecord is the value of the key.
type marksRecord struct {
	Marks map[int]int64 `json:"marks"` // by database number, Unix ms
}

func marksKey(cluster, identity string) string { return "/" + cluster + "/marks/" + identity }

// KeepMarks merges the marks of the databases with an identity into those in etcd, and returns the marks that were there
// before. known nil: it only reads.
func KeepMarks(ctx context.Context, client *clientv3.Client, cluster, identity string, known map[int]int64) (map[int]int64, error) {
	key := marksKey(cluster, identity)
	resp, err := client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	var before marksRecord
	mod := int64(0)
	for _, kv := range resp.Kvs {
		mod = kv.ModRevision
		if err := json.Unmarshal(kv.Value, &before); err != nil {
			before = marksRecord{} // it may be overwritten
		}
	}
	merged, lags := mergeMarks(before.Marks, known)
	if !lags {
		return before.Marks, nil
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod) // else another node was faster
	if _, err := client.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, encode(marksRecord{merged}))).Commit(); err != nil {
		return before.Marks, fmt.Errorf("write %s to etcd: %w", key, err)
	}
	return before.Marks, nil
}

// mergeMarks returns the higher mark of each database, and whether kept lags behind.
func mergeMarks(kept, known map[int]int64) (merged map[int]int64, lags bool) {
	merged = make(map[int]int64, len(known))
	for database, mark := range kept {
		merged[database] = mark
	}
	for database, mark := range known {
		lags = lags || mark-kept[database] >= keepWhen.Milliseconds()
		merged[database] = max(mark, kept[database])
	}
	return merged, lags
}

// Marks reads the marks that are kept for the databases with an identity, by number.
func (r *Registry) Marks(ctx context.Context, identity string) (map[int]int64, error) {
	return KeepMarks(ctx, r.client, r.cluster, identity, nil)
}
