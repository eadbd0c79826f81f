package service

import (
	"sync"
)

// lanes run functions one after another per key, in the order they came, and
// side by side over keys. They hold a bounded number of them.
type lanes struct {
	mu      sync.Mutex
	queues  map[string][]func() // of running keys: what waits behind
	pending int                 // waiting and running
	most    int
	idle    sync.Cond // pending became 0
	closed  bool
}

func newLanes(most int) *lanes {
	l := &lanes{queues: map[string][]func(){}, most: most}
	l.idle.L = &l.mu
	return l
}

// run takes fn, or reports false when there are too many already. A blank key is
// no lane: fn runs at once beside all others.
func (l *lanes) run(key string, fn func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.pending >= l.most {
		return false
	}
	l.pending++
	if key == "" {
		go func() {
			fn()
			l.done()
		}()
		return true
	}
	queue, running := l.queues[key]
	if running {
		l.queues[key] = append(queue, fn)
		return true
	}
	l.queues[key] = nil
	go l.work(key, fn)
	return true
}

func (l *lanes) work(key string, fn func()) {
	for fn != nil {
		fn()
		l.done()
		fn = l.next(key)
	}
}

func (l *lanes) next(key string) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queues[key]
	if len(queue) == 0 {
		delete(l.queues, key)
		return nil
	}
	l.queues[key] = queue[1:]
	return queue[0]
}

func (l *lanes) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending--
	if l.pending == 0 {
		l.idle.Broadcast()
	}
}

// size is how many functions wait or run.
func (l *lanes) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending
}

// close refuses new functions and waits for the others.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for l.pending > 0 {
		l.idle.Wait()
	}
}
