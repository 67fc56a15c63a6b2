// Command shop is a small web shop on Tocsin: a model to copy from. `make example` runs it with servers of its own.
//
//	POST /orders               an unpaid order, and with it the task that closes it      order.close    a while later
//	POST /orders/ID/payment    the task that asks the payment provider                   payment.check  at once, again and again
//	GET  /orders/ID            its state
//
//	HTTP --> orders.go, one transaction: row + task --> shop's database (and its outbox) --> Tocsin's databases
//	                                                                                              |
//	         tasks.go, the handlers  <------------------ a node in this process <-----------------+
//
// The shop's tables are in a database of its own. Tocsin's databases may be on other servers: a task then commits into the
// outbox with the order, and the node's relay moves it. Every handler may run twice for one task, and each statement has a
// condition, so that the second time changes nothing.
package main
