// Package deptest pins which package may import which, and that the pure
// packages read no clock. It holds only a test: the tables at its top are the
// rules, with a reason in every line, and are meant to be read and edited.
package deptest
