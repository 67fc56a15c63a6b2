// Package presence is the authority for which nodes of a group are there, where nobody owns tables, and for which tables
// each looks at first. Every node claims each row before it starts, so this decides who is likely to get a row, and never
// who may have it.
//
//	node --- its row, every 5 s ---> table node of every database
//	     <-- rows younger than 15 s --
//
// Each database has its own list, so a node that can't reach a database has no part in its tables. From the same list every
// node computes the same seats: its tables are dealt to the nodes in turn, by weight. Nodes that lack a biz type of the
// group get tables only if all do. A node looks at its own tables first, and at the others' 250 ms later.
//
// On failure: while a database can't be read or written, the last list stands. Nodes whose lists differ for a while claim
// the same rows, some in vain, or leave rows to each other, which start 250 ms late. A node that is killed or frozen is in
// the lists for 15 s. One that ends removes its rows first.
package presence
