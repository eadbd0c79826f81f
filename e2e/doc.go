// Package e2e tries the program from outside, as it is built and installed, with
// the real nats command line beside it.
//
// Its tests have the build tag e2e, for building that command takes a minute the
// first time (it is kept in the user's cache directory, by version): make e2e.
package e2e
