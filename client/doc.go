// Package client talks to a forge-es service over NATS.
//
//   - A Client is one caller: a connection, an instance, and a principal.
//   - A Request is one command or query; the Client gives every command an id, so
//     that repeating it is safe, and repeats it when the outcome is in doubt.
//   - A Reply says outcome, position and version; Into decodes its result.
//   - Errors are *events.Error: look at their Code, or at the sentinels of events.
//
// Caveats: a refused fence is a normal reply (Outcome "refused"), not an error.
// The principal is proved by the permissions of the connection, not by this
// package.
package client
