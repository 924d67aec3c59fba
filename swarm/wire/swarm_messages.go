package wire

// newSwarmMessage returns an empty offer or membership message (types 80–99)
// of type t, or nil if there is none.
func newSwarmMessage(t Type) Message {
	switch t {
	}
	return nil
}
