// Package replay reads the history of a log and judges it.
//
//   - A Reader gives the commits of a log, in stream order. Who reads from where
//     (a server, a file, a test) is none of this package's business.
//   - Check reads all of it once and follows every boundary: its chain, its fold,
//     its owners.
//   - A Violation is the first thing that is wrong: position, subject, Aspect.
//   - A Report says what was read, and the Digest of the folds.
//
// Nothing here can have an effect: no network, no files, no clock, no log to
// append to. The same records give the same answer on every machine.
//
// Caveats:
//
//   - Memory grows with the boundaries that the log has, not with its commits.
//   - A log that was written anew from its first commit on, by somebody who knows
//     the format, passes. That takes a signed checkpoint to find.
//   - A cut end is found only by one who knows how far the log went
//     (Options.Last).
//   - Owners and chains are checked; whether each decision was the one that the
//     rules of its time ask for is not, yet.
package replay
