// Package streams holds only tests: the days that testdata/streams records, as
// scripts, and the proof that what was recorded still reads, folds and plays as
// it did.
package streams
