package node

import (
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A grant holds for as long as it says, by clocks that are ten minutes off, and none holds until the year 2100.
func TestGrantsLast(t *testing.T) {
	client := swarm.Ephemeral()
	now := time.Unix(1_700_000_000, 0)
	for expires, ok := range map[time.Time]bool{
		now: true, now.Add(grantLife): true, now.Add(-19 * time.Minute): true, now.Add(-21 * time.Minute): false,
		now.Add(grantLife + 19*time.Minute): true, now.Add(grantLife + 21*time.Minute): false, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC): false,
	} {
		g := &wire.Grant{Client: client.ID(), Decoder: "D", Expires: uint64(expires.Unix())}
		signGrant(client, g)
		if r := checkGrant(g, "D", now); (r == nil) != ok {
			t.Errorf("a grant until %v, at %v: %v", expires, now, r)
		}
	}
	g := &wire.Grant{Client: client.ID(), Decoder: "D", Expires: 1<<64 - 1}
	signGrant(client, g)
	if checkGrant(g, "D", now) == nil {
		t.Error("a grant for ever")
	}
}
