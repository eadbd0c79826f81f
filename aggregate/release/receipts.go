package release

import (
	"bytes"
	"encoding/json"
)

// receiptChunk is how many receipts lie together.
const receiptChunk = 256

// receipts is a list that only grows and is never changed: a longer one shares
// all but the last chunk with the one it was made of, so that recording n
// receipts one by one does not take n² steps.
type receipts struct {
	full  [][]json.RawMessage // receiptChunk each
	last  []json.RawMessage
	bytes int // of all receipts
}

// len is the number of receipts.
func (l receipts) len() int { return len(l.full)*receiptChunk + len(l.last) }

// at gives a receipt by its index.
func (l receipts) at(i int) json.RawMessage {
	if chunk := i / receiptChunk; chunk < len(l.full) {
		return l.full[chunk][i%receiptChunk]
	}
	return l.last[i-len(l.full)*receiptChunk]
}

// with gives the list with more at its end.
func (l receipts) with(list []json.RawMessage) receipts {
	l.last = append(l.last[:len(l.last):len(l.last)], list...)
	for _, r := range list {
		l.bytes += len(r)
	}
	for len(l.last) >= receiptChunk {
		l.full = append(l.full[:len(l.full):len(l.full)], l.last[:receiptChunk:receiptChunk])
		l.last = l.last[receiptChunk:]
	}
	return l
}

// part gives the receipts from one index up to another.
func (l receipts) part(from, to int) []json.RawMessage {
	list := make([]json.RawMessage, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, l.at(i))
	}
	return list
}

// text is the list as JSON.
func (l receipts) text() json.RawMessage {
	return joinReceipts(l.bytes, append(l.full[:len(l.full):len(l.full)], l.last)...)
}

// size is the length of text.
func (l receipts) size() int { return 2 + l.bytes + max(l.len()-1, 0) }

// joinReceipts makes a JSON list. bytes is about how many they have.
func joinReceipts(size int, chunks ...[]json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.Grow(size + size/16 + 2)
	b.WriteByte('[')
	for _, list := range chunks {
		for _, r := range list {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			b.Write(r)
		}
	}
	b.WriteByte(']')
	return b.Bytes()
}
