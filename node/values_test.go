package node_test

import (
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/node"
)

// Public packages write values out, so that their doc pages show them.
func TestValuesThatAreWrittenTwiceAreTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]any{
		"MaxKey":      {tocsin.MaxKey, name.MaxKey},
		"MaxPayload":  {tocsin.MaxPayload, client.MaxPayload},
		"MaxDedupKey": {tocsin.MaxDedupKey, client.MaxDedupKey},
		"MaxHeaders":  {tocsin.MaxHeaders, client.MaxHeaders},
		"MaxAhead":    {tocsin.MaxAhead, client.MaxAhead},
		"MaxOutput":   {tocsin.MaxOutput, client.MaxOutput},
		"MaxTables":   {tocsin.MaxTables, 1 << ids.TableBits},
		"Epoch":       {tocsin.Epoch, ids.Epoch},
		"node.ByEtcd": {node.ByEtcd, layoutrow.ByEtcd},
		"node.ByRows": {node.ByRows, layoutrow.ByRows},
		"ddl.ByEtcd":  {ddl.ByEtcd, layoutrow.ByEtcd},
		"ddl.ByRows":  {ddl.ByRows, layoutrow.ByRows},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %v is written, %v holds", name, c[0], c[1])
		}
	}
}
