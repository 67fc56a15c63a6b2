// Package why is the authority for what is said of a single task: where it is, and what it waits for.
//
//	row, server, policy (MySQL) ---+
//	owner, nodes (etcd) -----------+--> Explain --> Answer: a state of one word, and sentences
//	status pages of nodes ---------+
//
// Explain is pure: others read the Facts. What could not be read is among the Facts as an error, and is named in the Answer;
// the rest is explained as far as it is known. A task may wait for several things at once. The state is the first that has
// to change, and the others follow as sentences.
package why
