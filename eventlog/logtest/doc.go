// Package logtest runs the servers that tests of the log need: an embedded one,
// a cluster of three, a proxy between them and a client that loses answers; and it
// writes valid commits.
//
// Everything is on the loopback, in directories of the test, and ends with it. A
// server that does not come up fails the test.
package logtest
