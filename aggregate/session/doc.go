// Package session decides who owns a work.
//
//   - A State is one work: its state, its last known owner, and how firmly that
//     one holds it (standing); or that it is quarantined.
//   - A Command is one of the verbs of the specification, part 1, and of design
//     section 5.
//   - Facts are what the decision needs from outside: the time, the caller, the
//     owner's transport session, the announced runtime.
//   - A Fence is the answer of the commands that show an authority.
//   - Imports is the other boundary of this package: which snapshots of another
//     system's claims were taken over.
//
// A lapse is not an event: an owner is live while its lease end lies after the
// present time, and nothing needs to be written when it passes.
package session
