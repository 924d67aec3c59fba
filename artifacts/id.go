package artifacts

import (
	"encoding/hex"
	"fmt"
)

// ID names a model for ever: identical bytes have one ID whatever the files are called. See
// [Manifest.ID] for what it hashes.
type ID [32]byte

// ParseID reads the 64 hexadecimal digits that [ID.String] writes.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("model ID %s has %d characters, expected 64 hexadecimal digits", quote(s), len(s))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("model ID %s: expected 64 hexadecimal digits", quote(s))
	}
	return id, nil
}

// String returns the ID as 64 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Short returns the first 12 digits, for people.
func (id ID) Short() string { return id.String()[:12] }

// MarshalText returns what String returns.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is [ParseID].
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// quote quotes foreign text for an error, cut to 80 bytes.
func quote(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%q…", s[:80])
	}
	return fmt.Sprintf("%q", s)
}
