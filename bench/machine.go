package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Machine says on what was measured; it names no host.
type Machine struct {
	Cores  int    `json:"cores"`
	Memory string `json:"memory,omitempty"`
	Go     string `json:"go"`
	Server string `json:"natsServer"`
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Server: server.VERSION}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kB int64
		if _, err := fmt.Fscanf(bytes.NewReader(b), "MemTotal: %d kB", &kB); err == nil {
			m.Memory = fmt.Sprintf("%d GiB", (kB+1<<19)>>20)
		}
	}
	return m
}

// Disk says what the file system does without any server: messages of 800 bytes
// written to the end of a file, one fsync after each.
type Disk struct {
	PerSecond float64 `json:"perSecond"`
	P50       float64 `json:"p50ms"`
	P99       float64 `json:"p99ms"`
}

func probeDisk(ctx context.Context, dir string, d time.Duration) (*Disk, error) {
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	message := make([]byte, 800)
	c, err := drive(ctx, 1, d, func(int) error {
		if _, err := f.Write(message); err != nil {
			return err
		}
		return f.Sync()
	})
	return &Disk{c.PerSecond, c.P50, c.P99}, err
}
