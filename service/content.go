package service

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/forge-es/forge-es/events"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Content types of requests and replies.
const (
	ContentJSON    = "application/json"
	ContentMsgpack = "application/msgpack"
)

// maxNesting is how deep a msgpack body may nest.
const maxNesting = 64

// msgpackToJSON turns a msgpack body into JSON, so that there is one form to
// decide on. Bytes at key k become base64 text at key k+"Base64". It refuses
// extension types, map keys that are no text, numbers that JSON cannot hold, and
// trailing bytes.
func msgpackToJSON(b []byte) ([]byte, error) {
	r := bytes.NewReader(b)
	dec := msgpack.NewDecoder(r)
	var out bytes.Buffer
	if err := convertMsgpack(&out, dec, 0); err != nil {
		return nil, fmt.Errorf("msgpack: %w", err)
	}
	if _, err := dec.PeekCode(); err != io.EOF {
		return nil, errors.New("msgpack: trailing bytes")
	}
	return out.Bytes(), nil
}

func convertMsgpack(out *bytes.Buffer, dec *msgpack.Decoder, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("nests deeper than %d", maxNesting)
	}
	c, err := dec.PeekCode()
	if err != nil {
		return err
	}
	switch {
	case c == msgpcode.Nil:
		out.WriteString("null")
		return dec.DecodeNil()
	case c == msgpcode.True || c == msgpcode.False:
		v, err := dec.DecodeBool()
		out.WriteString(strconv.FormatBool(v))
		return err
	case c == msgpcode.Uint64:
		v, err := dec.DecodeUint64()
		out.WriteString(strconv.FormatUint(v, 10))
		return err
	case msgpcode.IsFixedNum(c) || c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		v, err := dec.DecodeInt64()
		out.WriteString(strconv.FormatInt(v, 10))
		return err
	case c == msgpcode.Float || c == msgpcode.Double:
		v, err := dec.DecodeFloat64()
		if err != nil {
			return err
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("a number that is none")
		}
		out.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
		return nil
	case msgpcode.IsString(c):
		v, err := dec.DecodeString()
		events.AppendJSONString(out, v)
		return err
	case msgpcode.IsBin(c):
		v, err := dec.DecodeBytes()
		events.AppendJSONString(out, base64.StdEncoding.EncodeToString(v))
		return err
	case msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32:
		return convertArray(out, dec, depth)
	case msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32:
		return convertMap(out, dec, depth)
	default:
		return fmt.Errorf("type 0x%02x is not supported", c)
	}
}

func convertArray(out *bytes.Buffer, dec *msgpack.Decoder, depth int) error {
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return err
	}
	out.WriteByte('[')
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := convertMsgpack(out, dec, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func convertMap(out *bytes.Buffer, dec *msgpack.Decoder, depth int) error {
	n, err := dec.DecodeMapLen()
	if err != nil {
		return err
	}
	out.WriteByte('{')
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		key, err := dec.DecodeString()
		if err != nil {
			return err
		}
		c, err := dec.PeekCode()
		if err != nil {
			return err
		}
		if msgpcode.IsBin(c) {
			key += "Base64"
		}
		events.AppendJSONString(out, key)
		out.WriteByte(':')
		if err := convertMsgpack(out, dec, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// jsonToMsgpack turns a reply into msgpack. Keys keep their order; numbers are
// integers where they are integral and fit.
func jsonToMsgpack(b []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var out bytes.Buffer
	enc := msgpack.NewEncoder(&out)
	tok, err := dec.Token()
	if err == nil {
		err = convertJSON(enc, dec, tok)
	}
	return out.Bytes(), err
}

func convertJSON(enc *msgpack.Encoder, dec *json.Decoder, tok json.Token) error {
	switch v := tok.(type) {
	case nil:
		return enc.EncodeNil()
	case bool:
		return enc.EncodeBool(v)
	case string:
		return enc.EncodeString(v)
	case json.Number:
		return encodeNumber(enc, v)
	}
	// The length stands first in msgpack, so that a container is gathered.
	var inner bytes.Buffer
	sub := msgpack.NewEncoder(&inner)
	n, tokens, encodeLen := 0, 1, enc.EncodeArrayLen
	if tok == json.Delim('{') {
		tokens, encodeLen = 2, enc.EncodeMapLen // key and value
	}
	for dec.More() {
		for range tokens {
			next, err := dec.Token()
			if err != nil {
				return err
			}
			if err := convertJSON(sub, dec, next); err != nil {
				return err
			}
		}
		n++
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if err := encodeLen(n); err != nil {
		return err
	}
	_, err := enc.Writer().Write(inner.Bytes())
	return err
}

func encodeNumber(enc *msgpack.Encoder, n json.Number) error {
	if v, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return enc.EncodeInt(v)
	}
	if v, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return enc.EncodeUint(v)
	}
	if f, ok := new(big.Float).SetString(strings.ToLower(string(n))); ok {
		v, _ := f.Float64()
		return enc.EncodeFloat64(v)
	}
	return fmt.Errorf("number %s", n)
}
