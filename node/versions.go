package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/swarm"
)

// apart returns why an offer has no place in plans of a profile: its node is of another version, of the protocols or of the
// numerics. "" where it has one.
func (n *Node) apart(o swarm.Offer, profile [32]byte) string {
	if o.Profile != profile {
		return "computes by other numerics, so its numbers would differ: it has another version of starling, or a backend with arithmetic of its own"
	}
	if o.Peer == n.ID() {
		return ""
	}
	if lacks := n.host.Lacks(o.Peer, protoSession, protoStage, protoKV); len(lacks) > 0 {
		return fmt.Sprintf("has another version of starling: it doesn't speak %s", strings.Join(lacks, ", "))
	}
	return ""
}

// tellApart adds to a plan, or to why there is none, the peers that no plan could use, each with the reason.
func (n *Node) tellApart(id artifacts.ID, p *route.Plan, err error) {
	offers := n.offersOf(id)
	profile := planProfile(id, offers)
	var none *route.NoRouteError
	reasons := &p.Reasons
	if errors.As(err, &none) {
		reasons = &none.Reasons
	} else if err != nil {
		return
	}
	for _, o := range offers {
		if why := n.apart(o, profile); why != "" {
			*reasons = append(*reasons, route.Reason{Peer: o.Peer, Text: why})
			if none != nil {
				none.Detail = strings.TrimPrefix(none.Detail+fmt.Sprintf("; %s %s", o.Peer, why), "; ")
			}
		}
	}
	slices.SortStableFunc(*reasons, func(a, b route.Reason) int { return strings.Compare(a.Peer, b.Peer) })
}
