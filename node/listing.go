package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// searched bounds the models of a search whose holders are asked for.
const searched = 32

// list tells the swarm which models this node publishes.
func (n *Node) list() {
	var list []swarm.Listing
	for _, m := range n.store.Models() {
		c, ok := m.Card()
		if !ok || !m.Published() || m.Problem() != nil || c.Layers > wire.MaxLayers {
			continue
		}
		list = append(list, swarm.Listing{Model: m.ID(), Name: clip(n.name(m), wire.MaxModelName), Family: clip(c.Architecture, wire.MaxFamily), Quant: clip(c.Quant, wire.MaxQuant),
			Licence: clip(m.Licence(), wire.MaxLicence), Bytes: m.TotalBytes(), Layers: c.Layers})
	}
	n.host.SetListings(list)
}

// clip cuts a text to at most limit bytes.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// copies returns how many of the peers hold each portion of a model of so many layers, as their offers say.
func copies(offers []swarm.Offer, id artifacts.ID, layers int) []int {
	count := make([]int, layers+1)
	for _, o := range offers {
		for p := range count {
			if artifacts.ID(o.Model) == id && p/8 < len(o.Held) && o.Held[p/8]>>(p%8)&1 == 1 {
				count[p]++
			}
		}
	}
	return count
}

// refreshModels pulls the offers of some models, several at once; what can't be had now is not known.
func (n *Node) refreshModels(ctx context.Context, ids []artifacts.ID) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_ = n.host.RefreshModel(ctx, id) // as above
		})
	}
	wg.Wait()
}

// Search finds models by words of their names, families, quants and licences: listings, and offers of models that are not listed.
func (e engine) Search(ctx context.Context, q control.SearchRequest) ([]control.Listing, error) {
	n := e.n
	err := n.host.SearchListings(ctx, q.Words)
	listings := n.host.Listings(q.Words)
	if err != nil && len(listings) == 0 && n.cfg.Client { // else it is known that nobody else is here
		return nil, err
	}
	var ids []artifacts.ID
	for _, l := range listings {
		if id := artifacts.ID(l.Model); !slices.Contains(ids, id) && len(ids) < searched {
			ids = append(ids, id)
		}
	}
	n.refreshModels(ctx, ids)
	offers := n.host.Offers()
	found := []control.Listing{}
	for _, l := range listings {
		found = append(found, control.Listing{Model: artifacts.ID(l.Model).String(), Name: l.Name, Family: l.Family, Quant: l.Quant, Licence: l.Licence, Bytes: l.Bytes,
			Layers: l.Layers, Publisher: l.Publisher, Expires: &l.Expires, Copies: copies(offers, artifacts.ID(l.Model), l.Layers)})
	}
	for _, o := range offers {
		id := artifacts.ID(o.Model)
		if slices.ContainsFunc(found, func(l control.Listing) bool { return l.Model == id.String() }) || !swarm.Matches(o.ModelName, q.Words) {
			continue
		}
		l := control.Listing{Model: id.String(), Name: o.ModelName}
		if m, ok := n.store.Get(id); ok {
			if c, ok := m.Card(); ok {
				l.Family, l.Quant, l.Licence, l.Bytes, l.Layers = c.Architecture, c.Quant, m.Licence(), m.TotalBytes(), c.Layers
				l.Copies = copies(offers, id, c.Layers)
			}
		}
		found = append(found, l)
	}
	slices.SortStableFunc(found, func(a, b control.Listing) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Model, b.Model), strings.Compare(a.Publisher, b.Publisher))
	})
	return found, nil
}
