// Package standin delivers what the owner of a table can't. A node that lacks a biz
// type, because the secret of its callback is missing there or its program is older,
// publishes that; this node then looks for rows of that type in its tables.
//
//	assign --duties--> standin --ids--> dispatcher, which claims each row first
//
// It is the authority for which of another owner's tables this node looks at. Twice a
// second it looks at each server on its own for rows that are due soon. Every 30 s it
// starts from the beginning, so that a row whose claim failed is found again.
//
// On failure: a server that does not answer delays its own tables only, and is logged
// at once and then once a minute. A node that can't prove its lease stands in for
// nobody, since it may not know whether it still should.
package standin
