// Package service takes commands and queries from NATS, decides, appends, and
// answers.
//
//   - A Service serves one instance: endpoints in the callers' account, the log in
//     another.
//   - A request is one message, checked and parsed; its reply says outcome,
//     position and version, or a code.
//   - A keeper keeps the boundaries of one kind folded, and carries a command
//     through load, decide, append, decide again.
//   - Lanes order the commands of one boundary and bound all of them together.
//   - Activity is what is known of transport sessions: facts, last value only.
//   - A Clock gives the time, and says when it cannot be trusted.
//
// Caveats: a decision that appends nothing is answered only from a state that was
// confirmed after the request arrived. Nothing here holds a rule; rules are in
// aggregate/. A reply goes only to subjects that begin with _INBOX or _R_.
package service
