// Package test has what takes more than one machine: its tests build networks
// of namespaces, which takes root on Linux, and run nodes in them. Elsewhere
// they are skipped, and say why.
//
//	space_linux_test.go      a network namespace, and what runs in it
//	nat_linux_test.go        two nodes behind two NATs, and one that both can reach
//	child_linux_test.go      what such a node does
//	volunteer_linux_test.go  whole nodes there, and a session whose link changes
//	talk_linux_test.go       a process of this binary in one
//	member_linux_test.go     that is a whole node
//	sniff_linux_test.go      that captures every packet
//	private_linux_test.go    a private swarm, its captures, and a stranger
//	doctor_linux_test.go     what 'starling doctor' says behind firewalls and routers
//	address_linux_test.go    nodes with IPv6 alone, and one with both versions of IP
//	idle_linux_test.go       one whose network goes away; a node among fifty that does nothing (make soak)
package test
