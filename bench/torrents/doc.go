// Package torrents is a program that measures how fast a torrent goes over the swarm's own streams, against the same torrent over plain
// TCP connections:
//
//	go run ./bench/torrents -size 256 -rounds 5
//
// One process has a seeder and, in each round, a new fetcher for each kind of connection, in turn, over the loopback interface: the same
// pieces, hashing and record on disk, other connections. The ratio of a round is the plain one's time over the swarm's.
package main
