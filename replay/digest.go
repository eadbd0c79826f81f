package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"

	"github.com/forge-es/forge-es/events"
)

// Boundary is what the commits of one boundary fold to.
type Boundary struct {
	Subject string
	Version uint64 // of its last commit
	State   events.State
}

// digestDomain begins what Digest hashes.
const digestDomain = "forge-fold/1"

// Digest is the SHA-256 of the folds of a log, given in subject order: two logs
// with the same digest have the same boundaries, at the same versions, in the
// same states. Hashed are the text "forge-fold/1" and per boundary: length of
// subject, subject, version, version of the state's encoding, length of state,
// state; every number as 8 bytes, big-endian.
func Digest(boundaries iter.Seq[Boundary]) events.Hash {
	h := sha256.New()
	var number [8]byte
	put := func(n uint64) {
		binary.BigEndian.PutUint64(number[:], n)
		h.Write(number[:])
	}
	h.Write([]byte(digestDomain))
	for b := range boundaries {
		put(uint64(len(b.Subject)))
		h.Write([]byte(b.Subject))
		put(b.Version)
		put(uint64(b.State.V))
		put(uint64(len(b.State.Data)))
		h.Write(b.State.Data)
	}
	return events.Hash(h.Sum(nil))
}
