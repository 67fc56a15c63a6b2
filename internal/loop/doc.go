// Package loop is what the loops of this module share: how they wait between two rounds, how they log a fault that lasts, and what to do about a
// server that they can't reach.
//
// A wait lasts no longer than its context. The first line of a cause is written at once, then at most one a minute, which counts the
// lines left out since ("suppressed": 41). A loop reports every failure, not only the first in a row. So a fault that lasts is logged
// again each minute, and no caller has to remember what it has already logged.
//
// rate.Sometimes and samplers limit one place in the code. None counts what it leaves out, nor forgets causes that ended.
package loop
