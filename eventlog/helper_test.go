package eventlog_test

// helper plays the part of another process when a test says so.
func helper() bool { return false }
