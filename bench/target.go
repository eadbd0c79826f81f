package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// maxConns is over how many connections callers are spread, on both sides alike.
const maxConns = 8

// target is the process that is measured, as the load process sees it.
type target struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	first  answer
	conns  []*nats.Conn
	waited chan error
	// stop ends the process: it stops the service and its server, as `forge-es
	// serve` does. It may be called again.
	stop func() error
}

// startTarget runs this program again as a target, and connects callers to it.
func startTarget(cfg childConfig, callers int, stderr io.Writer) (t *target, err error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t = &target{cmd: exec.Command(self), waited: make(chan error, 1)}
	t.stop = sync.OnceValue(t.end)
	t.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	t.cmd.Stderr = stderr
	if t.stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe: Wait would close it.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.cmd.Stdout, t.stdout = w, bufio.NewReader(r)
	err = t.cmd.Start()
	w.Close()
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	go func() {
		t.waited <- t.cmd.Wait()
	}()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.stop())
		}
	}()
	if t.first, err = t.read(); err != nil {
		return t, err
	}
	for range min(callers, maxConns) {
		nc, err := nats.Connect(t.first.URL, nats.NoReconnect())
		if err != nil {
			return t, err
		}
		t.conns = append(t.conns, nc)
	}
	return t, nil
}

// conn is the connection of a caller.
func (t *target) conn(caller int) *nats.Conn { return t.conns[caller%len(t.conns)] }

func (t *target) ask(q question) (answer, error) {
	if err := json.NewEncoder(t.stdin).Encode(q); err != nil {
		return answer{}, fmt.Errorf("target: %w", err)
	}
	return t.read()
}

func (t *target) read() (a answer, err error) {
	line, err := t.stdout.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	switch {
	case err != nil:
		return a, fmt.Errorf("target: %w", err)
	case a.Error != "":
		return a, fmt.Errorf("target: %s", a.Error)
	}
	return a, nil
}

// stopPatience is how long a target may take to end.
const stopPatience = 30 * time.Second

func (t *target) end() error {
	for _, nc := range t.conns {
		nc.Close()
	}
	t.stdin.Close()
	select {
	case err := <-t.waited:
		return err
	case <-time.After(stopPatience):
		return errors.Join(fmt.Errorf("target: still there after %s", stopPatience), t.cmd.Process.Kill(), <-t.waited)
	}
}
