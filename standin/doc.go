// Package standin delivers what the owner of a table can't: a node that lacks a
// biz type, as the secret of its callback is missing there or its program is
// older, says so, and this node looks for rows of that type in its tables.
//
//	assign --duties--> standin --ids--> dispatcher, which claims each row first
//
// It is the authority for which of another owner's tables this node looks at. Each
// server is looked at on its own, twice a second, for what is due soon; once in a
// while from the beginning, so that what a claim did not get is found again.
//
// On failure: a server that does not answer delays its own tables only, and is
// logged at once and then once a minute. A node that can't prove its lease stands
// in for nobody: it may not know whether it still should.
package standin
