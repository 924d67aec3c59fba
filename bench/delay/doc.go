// Package delay is a program that joins network namespaces by links of a given
// delay and rate, for measuring on kernels without netem:
//
//	delay -delay 10ms -rate 1000000000 10.0.0.1=3 10.0.0.2=4
//
// Each argument is a peer: its IPv4 address, and an inherited file that gives
// and takes one packet with each read and write, such as a TUN device's. A
// packet waits for the sender's uplink (rate, bits per second), travels for the
// delay, and waits for the receiver's downlink (the same rate). No packet
// overtakes another of the same pair; one that finds 50 ms of others queued is
// dropped, as by a router, so that congestion control sees what it knows.
//
// The program ends with its standard input, and then prints what it did:
//
//	{"forwarded": 1234, "dropped": 0, "late_us": 35.2}
//
// late_us is how much later than they should packets left, on average: the
// processor that the program shares with others is not always free.
package main
