// Package ledbat sends bulk data over streams without delaying what shares their way. It does what LEDBAT does for whole connections
// (RFC 6817), inside one: where seams and torrents are streams of one libp2p connection, they also share its buffers, which can hold
// far more than the network. So the receiver acknowledges what it has read, and the sender keeps as little under way as it takes to
// have the slowest part of the way at work, wherever that is: a [Conn] notices a queue by round trips that become longer.
//
// That holds only while one of the two ends is busy, which is for its user to say. Otherwise a Conn sends as fast as it can.
//
// window.go is the controller, without I/O or clock; conn.go moves the bytes.
package ledbat
