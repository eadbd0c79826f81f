package logtest

import (
	"bufio"
	"bytes"
	"net"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Wire lies between a client and its server. It can lose messages on their way to
// the client or to the server, and break the connection.
type Wire struct {
	mu      sync.Mutex
	lose    func(payload []byte) bool
	swallow func(subject string) bool
	conns   map[net.Conn]bool
	lost    int
}

// Swallow has every message to the server lost of which swallow says so; nil:
// none.
func (w *Wire) Swallow(swallow func(subject string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.swallow = swallow
}

// Lose has every message to the client lost of which lose says so; nil: none.
func (w *Wire) Lose(lose func(payload []byte) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = lose
}

// LoseAcks has the next n acknowledgements of appends lost.
func (w *Wire) LoseAcks(n int) {
	w.Lose(func(payload []byte) bool {
		if n <= 0 || !IsAck(payload) {
			return false
		}
		n--
		return true
	})
}

// IsAck says whether a message acknowledges an append.
func IsAck(payload []byte) bool {
	return bytes.HasPrefix(payload, []byte(`{"stream":`)) && bytes.Contains(payload, []byte(`"seq":`)) && !bytes.Contains(payload, []byte(`"error"`))
}

// Lost is how many messages were lost.
func (w *Wire) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Cut breaks every connection there is; clients may connect anew.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

// TCP lets a connection to external servers go through the wire.
func (w *Wire) TCP() nats.Option { return nats.SetCustomDialer(w) }

// InProcess lets a connection to a server in this process go through the wire.
func (w *Wire) InProcess(srv *server.Server) nats.Option {
	return nats.InProcessServer(inProcess{w, srv})
}

type inProcess struct {
	wire *Wire
	srv  *server.Server
}

func (p inProcess) InProcessConn() (net.Conn, error) { return p.wire.through(p.srv.InProcessConn()) }

// Dial connects through the wire.
func (w *Wire) Dial(network, address string) (net.Conn, error) {
	return w.through(net.Dial(network, address))
}

func (w *Wire) through(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		w.conns = map[net.Conn]bool{}
	}
	w.conns[c] = true
	return &wireConn{Conn: c, wire: w, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

// wireConn reads the protocol operation by operation.
type wireConn struct {
	net.Conn
	wire *Wire
	in   *bufio.Reader
	out  []byte // read, not yet taken
	sent []byte // written, not yet a whole operation
}

// Write passes whole operations on.
func (c *wireConn) Write(p []byte) (int, error) {
	c.sent = append(c.sent, p...)
	var pass []byte
	for {
		end := bytes.IndexByte(c.sent, '\n') + 1
		if end == 0 {
			break
		}
		words := bytes.Fields(c.sent[:end])
		keep := true
		if verb := string(words[0]); verb == "PUB" || verb == "HPUB" {
			size, err := strconv.Atoi(string(words[len(words)-1]))
			if err != nil {
				return 0, err
			}
			if end += size + 2; len(c.sent) < end {
				break
			}
			c.wire.mu.Lock()
			if c.wire.swallow != nil && c.wire.swallow(string(words[1])) {
				c.wire.lost++
				keep = false
			}
			c.wire.mu.Unlock()
		}
		if keep {
			pass = append(pass, c.sent[:end]...)
		}
		c.sent = c.sent[end:]
	}
	if _, err := c.Conn.Write(pass); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c.Conn)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}

func (c *wireConn) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
		op, err := c.operation()
		if err != nil {
			return 0, err
		}
		c.out = op
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

// operation reads one operation of the server; nothing when it is to be lost.
func (c *wireConn) operation() ([]byte, error) {
	line, err := c.in.ReadBytes('\n')
	if err != nil || !bytes.HasPrefix(line, []byte("MSG ")) && !bytes.HasPrefix(line, []byte("HMSG ")) {
		return line, err
	}
	words := bytes.Fields(line)
	size, err := strconv.Atoi(string(words[len(words)-1]))
	if err != nil {
		return nil, err
	}
	op := make([]byte, len(line)+size+2)
	for n := copy(op, line); n < len(op); {
		k, err := c.in.Read(op[n:])
		if err != nil {
			return nil, err
		}
		n += k
	}
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.wire.lose != nil && c.wire.lose(op[len(line):len(op)-2]) {
		c.wire.lost++
		return nil, nil
	}
	return op, nil
}
