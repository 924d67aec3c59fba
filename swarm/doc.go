// Package swarm is everything that libp2p does for Starling: a node's identity,
// its connections, who it lets in, how it finds others, and the offers that
// say what each peer holds. No libp2p type leaves it; a peer is the text of its
// peer ID, a stream is a net.Conn.
//
// Files, along the life of a node:
//
//	identity.go    the Ed25519 key and its signatures
//	swarms.go      swarms that this data folder knows; create.go makes one
//	invite.go      invites: make, redeem; join.go uses one
//	owners.go      who may let peers in and put them out; delegate.go makes more owners
//	revoke.go      the owners' lists of peers that are no longer members
//	member.go      who is a member, by certificate; roster.go lists them
//	admit.go       the exchange that every connection of a private swarm starts with
//	gate.go        who isn't dialled
//	block.go       peers that this node's owner wants nothing to do with
//	host.go        Start and Close; the only file that calls libp2p.New
//	limits.go      windows, dial order, resource limits; flood.go cuts off who opens streams without end
//	reach.go       whether others can dial this node
//	relay.go       connections through members, until a direct one comes about
//	stream.go      Stream, Handle, Listener
//	dial.go        Open: find addresses, connect
//	bootstrap.go   keeps the node in the swarm for as long as it runs
//	remember.go    peers of earlier runs
//	contact.go     how it stands with bootstrap nodes; clock.go what peers' clocks show
//	dht.go         who is where: provider records, mDNS
//	offer.go       Offer; book.go what is known of others'
//	publish.go     this node's offers, told; refresh.go others' offers, fetched
//	track.go       the exchange both use
package swarm
