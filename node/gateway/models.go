package gateway

import (
	"net/http"
	"strings"

	"github.com/starling-swarm/starling/node/control"
)

// modelObject is a model as OpenAI's lists have it, with what else is known.
type modelObject struct {
	ID      string `json:"id"` // the name, by which requests ask for it
	Object  string `json:"object"`
	Created int64  `json:"created"` // not known: 0
	OwnedBy string `json:"owned_by"`

	Hash          string `json:"hash"` // the model ID
	Architecture  string `json:"architecture,omitempty"`
	Quantisation  string `json:"quantisation,omitempty"`
	ContextLength int    `json:"context_length,omitempty"`
	Peers         int    `json:"peers"` // that offer some of it
}

// models lists what the swarm can compute: of other models some layer is with nobody.
func (g *gateway) models(w http.ResponseWriter, r *http.Request) {
	known, err := g.client.Models(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	list := []modelObject{}
	for i := range known {
		if known[i].Covered {
			list = append(list, describe(&known[i], known))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// model describes one model, by name, ID or its beginning.
func (g *gateway) model(w http.ResponseWriter, r *http.Request) {
	m, err := g.client.Model(r.Context(), control.ModelRequest{Model: r.PathValue("model")}, nil)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, describe(m, nil))
}

// describe names a model by its ID where another one has its name, or it has none.
func describe(m *control.Model, among []control.Model) modelObject {
	o := modelObject{ID: m.Name, Object: "model", OwnedBy: "swarm", Hash: m.ID, Architecture: m.Arch, Quantisation: m.Quant, ContextLength: m.Context, Peers: m.Peers}
	for i := range among {
		if other := &among[i]; other.ID != m.ID && strings.EqualFold(other.Name, m.Name) {
			o.ID = m.ID
		}
	}
	if o.ID == "" {
		o.ID = m.ID
	}
	return o
}
