// Package sim plays a swarm of up to 100,000 peers in virtual time: machines come and go, hold layers, and serve sessions. Discrete events move the clock. What
// decides is the product's own code: package route plans every session, package assign says which layers a volunteer holds
// and when it moves, and the bytes of control traffic are the lengths of package wire's frames.
//
// # What is modelled
//
// Peers are drawn from the classes of a [Scenario], with lognormal spread. They stay for lognormal times, from minutes to days. A part of them
// leaves without a word. A newcomer pulls offers, chooses layers, claims them, fetches what its disk lacks at half its downlink, and serves. Half of the newcomers
// are machines that were there before, and have their disk still.
//
// Offers go to up to three trackers after each change, and twice in their life. Whoever plans pulls up to 200 from each of its trackers, at random, and sees what peers said
// last, not what they are. A way between two peers takes what both access lines and the distance between them take; planners know only the
// latest 16 that each peer has measured in sessions, and price the others with route's defaults.
//
// Sessions are a closed loop: where one ends the next begins. Each opens its plan at the peers; one that has died or has no room for the session's KV is
// excluded, and the client plans again, [attempts] times. How long it takes is what the plan costs by route's formulas with
// the peers' real loads and links at its beginning. When a peer is lost that the session needs, it
// plans again with all tokens so far and computes everything again, which is more than the product does.
//
// # What is not
//
// Links and processors shared by sessions that begin later; bytes of the DHT, of connections and of torrents; errors of measured speeds; malice.
package sim
