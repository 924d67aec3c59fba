// Package wire is Starling's wire format: every message that crosses a
// connection between peers, byte by byte. docs/protocol.md is the same in
// prose; the two change together.
//
// A stream carries frames:
//
//	u32 length of what follows | u8 type | body
//
// All integers are little endian. Strings are u16 length + UTF-8 bytes, byte
// strings u32 length + bytes, hashes 32 raw bytes, peers are strings. A body
// has exactly the length its fields need: missing and surplus bytes are both
// errors, since the protocol's version is part of its name
// ("/starling/stage/10") and a new field means a new name.
//
// Every length is compared with a limit, and with what remains of the frame,
// before anything is allocated. Frames that belong to a session start with a
// Head (session, epoch); receivers check it before they look further.
//
// The package does no I/O beyond ReadFrame and WriteFrame, has no clock and
// knows no keys: signatures cover the bytes that SigningBytes returns and are
// made and checked by the caller.
package wire
