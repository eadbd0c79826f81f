// Package aggregate is the shape that every boundary of forge-es has.
//
//   - A Decider holds the rules: Decide turns a state, a command and facts into
//     a Decision; Evolve turns a state and an event into the next state.
//   - A Decision is events to append and the result to answer; a refusal is an
//     error, or a refused fence.
//   - A Folded is a state with the head of its boundary: where the next commit
//     has to go.
//   - A Body is a command as it was sent; its Fields keep absent, well-formed and
//     malformed apart, so that each is judged when its check is due.
//
// Everything is pure: the clock, the caller and all surrounding facts come in as
// values. Evolve must not keep references into an event, nor change the state
// that it was given.
package aggregate
