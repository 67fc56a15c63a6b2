package assign

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// incarnationLen is the length of the random end of a node's id.
const incarnationLen = 8 // see name.NewID

// space is where a group's keys are: "/{cluster}/groups/{group}/".
type space string

func groupsOf(cluster string) string      { return "/" + cluster + "/groups/" }
func spaceOf(cluster, group string) space { return space(groupsOf(cluster) + group + "/") }
func (s space) nodes() string             { return string(s) + "nodes/" }
func (s space) tables() string            { return string(s) + "tables/" }
func (s space) drains() string            { return string(s) + "drains/" }
func (s space) node(id string) string     { return s.nodes() + id }
func (s space) drain(id string) string    { return s.drains() + id }
func (s space) table(n int) string        { return s.tables() + strconv.Itoa(n) }
func (s space) nodeOf(key string) string  { return strings.TrimPrefix(key, s.nodes()) }
func (s space) isNode(key string) bool    { return strings.HasPrefix(key, s.nodes()) }

func (s space) drainOf(key string) (id string, ok bool) {
	return strings.CutPrefix(key, s.drains())
}

func (s space) tableOf(key string) (int, bool) {
	text, ok := strings.CutPrefix(key, s.tables())
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == text
}

// NodeInfo is what a node tells about itself in its key, or in its rows.
type NodeInfo struct {
	Version string    `json:"version"`
	Schema  int       `json:"schema"`           // schema version that its program is for; 0: 1, of a program that does not tell
	Types   []string  `json:"types"`            // names of the biz types it delivers, sorted; null: not told, or too many to name in a row
	Listen  string    `json:"listen,omitempty"` // address of its status page
	API     string    `json:"api,omitempty"`    // URL of its HTTP API
	Started time.Time `json:"started"`
	// Lacks are the biz types of its group that it does not deliver, with the reasons: others stand in for it. null: an
	// older program, which does not tell.
	Lacks map[string]string `json:"lacks"`
	// Versions are those of the payloads that its handlers know, by biz type.
	Versions map[string]int `json:"versions,omitempty"`
	// Newer has the newest payload version of each biz type whose tasks the node leaves alone because it cannot read them.
	Newer map[string]int `json:"newer_payloads,omitempty"`
}

// nodeRecord is the value of a node's key, and of the column about of its rows.
type nodeRecord struct {
	NodeInfo
	Identity
	Weight  int  `json:"weight"`
	Leaving bool `json:"leaving,omitempty"` // it is giving up its tables and takes none
	// Newcomer says that it does not plan yet: what is given up for it now would lie without an owner.
	Newcomer bool `json:"newcomer,omitempty"`
	// Pausing means that the node takes nothing for up to a TTL, because etcd was away.
	Pausing bool `json:"pausing,omitempty"`
	// Misses are the blocks of tables that the node can't reach.
	Misses []int `json:"misses,omitempty"`
	Block  int   `json:"block,omitempty"` // tables in one of these
}

// tableRecord is the value of a table's key. It is for people: programs read the lease that etcd keeps with the key.
type tableRecord struct {
	Node  string `json:"node"`
	Lease string `json:"lease"` // hexadecimal, as etcdctl shows it
}

func leaseText(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// encode gives the JSON of a record; ours always have one.
func encode(record any) string {
	text, err := json.Marshal(record)
	if err != nil {
		panic("assign: encode a record: " + err.Error())
	}
	return string(text)
}
