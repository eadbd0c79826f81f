// Package events is the language of the log.
//
//   - An event says what was decided, in the past tense; it has a type, a
//     version, and a JSON Schema (Catalogue).
//   - A Commit is what one accepted command appends: one or more events,
//     atomically, with who, when, why, and a hash chain back to the commit before.
//   - A subject names one consistency boundary; a Token makes any id fit into it.
//   - A Record is a commit as it lies on the stream: position, subject, payload.
//   - An Error has a stable Code; one table maps codes to wire numbers, exit
//     statuses and sentinels.
//
// Everything here is pure: no network, no files, no clock, no randomness. The
// encoding is canonical and strict: one value has one encoding, and bytes that
// are not that encoding are an error. Foreign data is carried as bytes.
package events
