package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forge-es/forge-es/events"
	"github.com/google/renameio/v2"
	"github.com/minio/highwayhash"
	"github.com/rs/zerolog"
)

// Files in which the server describes a stream (server 2.15, filestore.go). It
// replaces one after the other, so a kill may leave a description whose checksum
// is missing or that of the one before. Such a stream it then leaves out; and a
// new stream of that name takes over the messages under a new identity, which it
// does not even write down.
const (
	storeDir   = "jetstream"
	streamsDir = "streams"
	metaFile   = "meta.inf"
	metaSum    = "meta.sum"
	blocks     = "msgs/*.blk"
)

// repairStreams looks at the streams in a data directory before the server does:
// it completes what a kill tore apart, and refuses with FORGE_LOG_UNSAFE
// (details stream, file) a stream with messages whose description is gone.
func repairStreams(dir string, log zerolog.Logger) error {
	list, err := filepath.Glob(filepath.Join(dir, storeDir, "*", streamsDir, "[^.]*"))
	if err != nil {
		return err
	}
	for _, stream := range list {
		if err := repairStream(stream, log); err != nil {
			return err
		}
	}
	return nil
}

func repairStream(dir string, log zerolog.Logger) error {
	name := filepath.Base(dir)
	meta, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	var described struct{ Name string }
	if json.Unmarshal(meta, &described) != nil || described.Name != name {
		kept, err := holdsMessages(dir)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		if kept {
			return events.Errorf(events.CodeLogUnsafe, "stream %s has messages, but %s, which says what it is, is missing or broken: restore the file, or the log", name, metaFile).
				With("stream", name).With("file", filepath.Join(dir, metaFile))
		}
		// Its making was interrupted, there is nothing in it.
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		return nil
	}
	want, err := metaChecksum(name, meta)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, metaSum))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	if string(sum) == want {
		return nil
	}
	log.Warn().Str("stream", name).Msg("the checksum of the stream's description was not written before the process ended: written now")
	if err := renameio.WriteFile(filepath.Join(dir, metaSum), []byte(want), 0o600); err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	return nil
}

// metaChecksum is what the server expects in metaSum.
func metaChecksum(stream string, meta []byte) (string, error) {
	key := sha256.Sum256([]byte(stream))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = h.Write(meta)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// holdsMessages reports whether a block of a stream has content.
func holdsMessages(dir string) (bool, error) {
	list, err := filepath.Glob(filepath.Join(dir, blocks))
	if err != nil {
		return false, err
	}
	for _, block := range list {
		info, err := os.Stat(block)
		if err != nil {
			return false, err
		}
		if info.Size() > 0 {
			return true, nil
		}
	}
	return false, nil
}
