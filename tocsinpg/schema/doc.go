// Package schema is the authority for the table of an outbox in PostgreSQL: Plan prints its statements and the rights that
// users need, Apply runs them, Verify compares. Package ddl does the same for MySQL and MariaDB.
package schema
