// Package sweeper finds tasks that are overdue and still pending in any table
// and hands them to a dispatcher that claims each before it delivers it.
//
// It is the safety net under the nodes: it knows no owner, needs no etcd, and
// several may run at once, since a row goes to whoever claims it. It also gives
// back rows whose claim ran out. It is the authority for how long a task must
// be overdue before anyone but its owner looks at it: the grace time.
//
//	every table --peek overdue--> intake (claims, delivers, settles)
//	           \--recover-------> pending again, or dead at the fifth crash
//
// On failure: a server that does not answer costs its own tables only, and is
// named in Result.Failed; the next sweep tries again. A sweep that is cut off
// leaves claims that run out and are recovered by whoever comes next.
package sweeper
