package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
)

// name returns what people call a model: the name it was published under, else
// its header's, else its file's.
func (n *Node) name(m *artifacts.Model) string {
	if c, ok := m.Card(); ok && c.Name != "" {
		return c.Name
	}
	if m.Published() {
		return strings.TrimSuffix(filepath.Base(m.Path()), ".gguf")
	}
	return m.ID().Short()
}

// naming is a name that somebody gives a model. Names are hints, and no one's property.
type naming struct {
	id   artifacts.ID
	name string
	by   string // the publisher of a listing; empty: an offer, or what is held here, says so
}

// listLimit is how many models an error names.
const listLimit = 10

// resolve turns what a person wrote (an ID, six or more digits of its start,
// or a name) into a model ID. A name must be that of one model among those held
// here, offered and listed; otherwise the error lists the IDs.
func (n *Node) resolve(ctx context.Context, want string) (artifacts.ID, error) {
	id, err := n.resolveAny(ctx, want)
	if err == nil && n.isBlocked(id.String()) {
		return artifacts.ID{}, bad(fmt.Errorf("model %s is blocked on this node: 'starling block --undo %s' ends that", id.Short(), id))
	}
	return id, err
}

// resolveAny is resolve for models that are blocked, too.
func (n *Node) resolveAny(ctx context.Context, want string) (artifacts.ID, error) {
	if id, err := artifacts.ParseID(want); err == nil {
		return id, nil
	}
	if want == "" {
		return n.onlyModel(ctx)
	}
	known := n.namings()
	found := matchModels(known, want)
	if len(found) == 0 {
		_ = n.host.Refresh(ctx) // offers are hints: what can't be had now is simply not known
		_ = n.host.SearchListings(ctx, clip(want, 64))
		known = n.namings()
		found = matchModels(known, want)
	}
	switch ids := modelsOf(found); len(ids) {
	case 1:
		return ids[0], nil
	case 0:
	default:
		return artifacts.ID{}, bad(fmt.Errorf("%q is ambiguous, use an ID: %s", want, listModels(found)))
	}
	_ = n.host.SearchListings(ctx, "") // names like it
	return artifacts.ID{}, unknownModel(n.namings(), want)
}

// onlyModel returns the model that is held here or offered, if there is but one.
func (n *Node) onlyModel(ctx context.Context) (artifacts.ID, error) {
	known := n.heldOrOffered()
	if len(known) == 0 {
		_ = n.host.Refresh(ctx) // as above
		known = n.heldOrOffered()
	}
	switch ids := modelsOf(known); len(ids) {
	case 0:
		return artifacts.ID{}, unknownModel(nil, "")
	case 1:
		return ids[0], nil
	}
	return artifacts.ID{}, bad(fmt.Errorf("several models are known, say which with -m: %s", listModels(known)))
}

// heldOrOffered returns the models held here or offered by others.
func (n *Node) heldOrOffered() (known []naming) {
	for _, m := range n.store.Models() {
		known = append(known, naming{id: m.ID(), name: n.name(m)})
	}
	for _, o := range n.host.Offers() {
		known = append(known, naming{id: o.Model, name: o.ModelName})
	}
	return known
}

// knownModels returns a name of each model that is held here or offered.
func (n *Node) knownModels() map[artifacts.ID]string { return nameEach(n.heldOrOffered()) }

// nameEach returns the first name of each model.
func nameEach(known []naming) map[artifacts.ID]string {
	names := map[artifacts.ID]string{}
	for _, k := range known {
		if names[k.id] == "" {
			names[k.id] = k.name
		}
	}
	return names
}

// namings returns the models held here, offered or listed by anyone.
func (n *Node) namings() []naming {
	known := n.heldOrOffered()
	for _, l := range n.host.Listings("") {
		known = append(known, naming{id: l.Model, name: l.Name, by: l.Publisher})
	}
	return known
}

// matchModels returns those of known that want names: by start of ID or by name.
func matchModels(known []naming, want string) (found []naming) {
	for _, k := range known {
		if strings.EqualFold(k.name, want) || len(want) >= 6 && strings.HasPrefix(k.id.String(), strings.ToLower(want)) {
			found = append(found, k)
		}
	}
	return found
}

// modelsOf returns the models that are named, each once.
func modelsOf(known []naming) (ids []artifacts.ID) {
	for _, k := range known {
		if !slices.Contains(ids, k.id) {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// listModels writes models with their names and publishers, each once, sorted.
func listModels(known []naming) string {
	var list []string
	for _, id := range modelsOf(known) {
		name, by := "", ""
		for _, k := range known {
			if k.id != id {
				continue
			}
			if name == "" || k.by != "" && by == "" { // who puts a name to it comes first
				name = k.name
			}
			if k.by != "" && !strings.Contains(by, k.by[max(len(k.by)-8, 0):]) {
				by += ", by …" + k.by[max(len(k.by)-8, 0):]
			}
		}
		list = append(list, fmt.Sprintf("%s (%s%s)", name, id.Short(), by))
	}
	slices.Sort(list)
	if more := len(list) - listLimit; more > 0 {
		list = append(list[:listLimit], fmt.Sprintf("and %d more: look for words with 'starling models --search WORDS'", more))
	}
	return strings.Join(list, ", ")
}
