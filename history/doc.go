// Package history records what became of deliveries: one row of the table run for each attempt of a biz type whose policy
// says `history: true`, and of each run of a schedule.
//
// It is the authority for what recording may cost. A run is recorded after its outcome is stored, on a best-effort basis:
// nobody waits for the recording, and the history may lack runs.
//
//	settled --Record--> queue, one a server --a batch each 200 ms--> table run
//	                      | full: dropped        | refused: failed
//
// A Recorder writes up to 2,000 runs of a server in one transaction: one packet, with a statement for each database and
// 500 runs. Then it pauses for three times as long as the transaction took, so that deliveries come first in a burst. The
// pause is shorter when the queue is more than a quarter full, and zero when it is half full.
//
// A full queue drops the newest runs. It does not make deliveries wait until there is room: they would then stand still whenever
// a table run is locked or a server takes no more.
//
// What happens on failure:
//
//	queue full                     the run is dropped, and counted
//	server away, or read-only      the batch waits and is sent again; the queue fills
//	no answer to the commit        the batch counts as failed: sent again, its runs might stand twice
//	table locked, missing, full    the runs of that database fail, and no more are sent there for 5 s; the others go on
//	a run is refused               the batch is halved until only that run fails
//	the process ends               what is queued is written within 2 s; the rest is dropped
package history
