package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
)

// engine gives the node's local interface its methods; they are the ones that
// package control documents.
type engine struct{ n *Node }

// Control returns the node as the local interface sees it.
func (n *Node) Control() control.Engine { return engine{n} }

func (e engine) WriteMetrics(w io.Writer) error { return e.n.metrics.Write(w) }

func (e engine) Status(context.Context) (*control.Status, error) {
	n := e.n
	info := n.cfg.Swarm
	st := &control.Status{Version: n.cfg.Version, PID: os.Getpid(), Peer: n.ID(), Addrs: n.Addrs(), Torrent: n.torrents.PublicAddr(), Role: n.role(), Standing: n.standing().String(), Uptime: time.Since(n.began),
		Connected: n.host.Connected(), Reachable: string(n.host.Reachability()), Profile: runtime.NewProfile(runtime.KVF16).String(),
		Swarm: control.Swarm{ID: info.ID, Name: info.Name, Public: info.Public, Bootstrap: info.Bootstrap, Owner: n.swarms.Owns(info.ID)}}
	if len(st.Connected) == 0 {
		st.Looking = n.contacts()
	}
	for _, p := range st.Connected {
		if relay := n.host.Relay(p); relay != "" {
			st.Relayed = append(st.Relayed, control.Relayed{Peer: p, Relay: relay})
		}
	}
	for _, m := range n.store.Models() {
		st.Models = append(st.Models, n.modelView(m))
	}
	st.Kept = control.Kept{Disk: n.spill.bytes(), Hits: n.reuse.hits.Load(), Positions: n.reuse.positions.Load()}
	for _, s := range n.servedList() {
		_, kept := s.prefixes.heldBytes(s.kvLimit)
		st.Kept.Memory += kept
	}
	st.Sessions, st.Measured = n.sessionViews(), n.measured.Load()
	st.Spare, st.Terms = n.spareStatus(), n.termsStatus()
	st.Problems = n.problems()
	return st, nil
}

// problems lists what a person should look at.
func (n *Node) problems() (list []string) {
	if err := n.host.IdentityConflict(); err != nil {
		list = append(list, err.Error())
	}
	n.sessions.Lock()
	list = append(list, n.sessions.silent...)
	n.sessions.Unlock()
	if err := n.host.Serves(); err != nil && len(n.servedList()) > 0 {
		list = append(list, fmt.Sprintf("what is served here is used by this node only: %v; ask the swarm's owner for an invitation of another role", err))
	}
	for _, err := range n.store.Problems() {
		list = append(list, err.Error())
	}
	for _, m := range n.store.Models() {
		if err := m.Problem(); err != nil {
			list = append(list, fmt.Sprintf("model %s: %v", m.ID().Short(), err))
		}
	}
	return list
}

func (n *Node) role() string {
	switch {
	case n.cfg.Client:
		return "client"
	case len(n.servedList()) == 0:
		return "tracker"
	}
	return "volunteer"
}

func (n *Node) modelView(m *artifacts.Model) control.Model {
	v := control.Model{ID: m.ID().String(), Name: n.name(m), Bytes: m.TotalBytes(), Allocated: m.AllocatedBytes(), Path: m.Path()}
	if c, ok := m.Card(); ok {
		v.Arch, v.Quant, v.NumLayers, v.Width, v.Vocab, v.Context = c.Architecture, c.Quant, c.Layers, c.Width, c.Vocab, c.Context
		if h := m.Held(); h.Layers.Len() > 0 {
			v.Held = &control.Layers{First: h.Layers.First, Last: h.Layers.Last - 1}
		}
	}
	if p, err := m.Pins(); err == nil && p.Pinned != nil {
		v.Pinned = &control.Layers{First: p.Pinned.First, Last: p.Pinned.Last - 1}
	}
	if s := n.served(m.ID()); s != nil {
		r := s.exec.Layers()
		v.Serving, v.Decoder = &control.Layers{First: r.First, Last: r.Last - 1}, s.decodes()
		if s.draft != nil {
			v.Draft = s.draft.name
		}
	}
	return v
}

func (n *Node) sessionViews() (views []control.Session) {
	for id, s := range n.stageMap() {
		s.mu.Lock()
		views = append(views, control.Session{ID: id.String(), Role: "stage", Model: s.model.String(), Layers: s.m.layers.String(),
			Tokens: int(s.m.computed), KVBytes: kvBytes(s.prefixes.exec.Config(), s.m.seq, s.m.layers, s.m.plan.Capacity), Age: time.Since(s.began)})
		s.mu.Unlock()
	}
	for _, d := range n.decoderList() {
		d.mu.Lock()
		kv := int64(0)
		if d.m.seq != nil { // else it waits for room
			kv = kvBytes(d.exec.Config(), d.m.seq, d.m.held, uint32(len(d.m.open.Tokens))+d.m.open.MaxNew)
		}
		views = append(views, control.Session{ID: d.m.head.Session.String(), Role: "decoder", Model: d.model.String(), Layers: d.exec.Layers().String(),
			Tokens: len(d.m.tokens), KVBytes: kv, Age: time.Since(d.began)})
		d.mu.Unlock()
	}
	n.sessions.Lock()
	defer n.sessions.Unlock()
	for id, s := range n.sessions.clients {
		views = append(views, control.Session{ID: id.String(), Role: "client", Model: s.model.String(), Tokens: len(s.prompt), Age: time.Since(s.began)})
	}
	slices.SortFunc(views, func(a, b control.Session) int { return strings.Compare(a.ID+a.Role, b.ID+b.Role) })
	return views
}

// kvBytes returns about what a session's cache takes, of some layers and so many positions.
func kvBytes(c runtime.Config, seq runtime.Sequence, layers runtime.Range, positions uint32) (sum int64) {
	tails := c.Snapshots(seq.Profile().KV, seq.Capacity()).Tails()
	for l := layers.First; l < layers.Last; l++ {
		sum += int64(seq.KVBytes(l, 0, int(positions)) + (tails-1)*seq.TailBytes(l))
	}
	return sum
}

func (e engine) Models(ctx context.Context) ([]control.Model, error) {
	n := e.n
	_ = n.host.Refresh(ctx) // offers are hints: what is known is listed
	byID := map[string]*control.Model{}
	var ids []string
	add := func(v control.Model) *control.Model {
		if byID[v.ID] == nil {
			byID[v.ID] = &v
			ids = append(ids, v.ID)
		}
		return byID[v.ID]
	}
	for _, m := range n.store.Models() {
		add(n.modelView(m))
	}
	for _, o := range n.host.Offers() {
		v := add(control.Model{ID: artifacts.ID(o.Model).String(), Name: o.ModelName})
		v.Peers++
	}
	slices.Sort(ids)
	list := make([]control.Model, 0, len(ids))
	for _, id := range ids {
		v := byID[id]
		v.Covered = n.covered(id, v.NumLayers)
		list = append(list, *v)
	}
	return list, nil
}

// covered reports whether the offers cover every layer of a model, the
// embedding and the head. Without a header the head's offers say how many
// layers there are.
func (n *Node) covered(id string, layers int) bool {
	var offers []swarm.Offer
	head := false
	for _, o := range n.host.Offers() {
		if artifacts.ID(o.Model).String() == id {
			offers = append(offers, o)
			if o.Head {
				head, layers = true, max(layers, o.Last)
			}
		}
	}
	at := 0
	for grown := true; grown; {
		grown = false
		for _, o := range offers {
			if o.First <= at && o.Last > at && (at > 0 || o.Embed) {
				at, grown = o.Last, true
			}
		}
	}
	return head && at >= layers
}

func (e engine) Peers(ctx context.Context) ([]control.Peer, error) {
	_ = e.n.host.Refresh(ctx) // offers are hints: what is known is listed
	var list []control.Peer
	for _, o := range e.n.host.Offers() {
		draft := ""
		if o.Draft != ([32]byte{}) {
			draft = artifacts.ID(o.Draft).String()
		}
		slower := 0.0
		if arithmetic, reading := e.n.hindsight.slowness(o.Peer, o.Model, o.PrefillFlops, o.DecodeBytesPerSec, time.Now()); max(arithmetic, reading) > 1 {
			slower = max(arithmetic, reading)
		}
		list = append(list, control.Peer{Peer: o.Peer, Slower: slower, Model: artifacts.ID(o.Model).String(), Name: o.ModelName,
			Layers: control.Layers{First: o.First, Last: o.Last - 1}, Decoder: !o.NoDecode, Draft: draft, Prefill: o.PrefillFlops, Decode: o.DecodeBytesPerSec,
			KVFree: o.KVFreeBytes, Relayed: o.RelayedOnly(), Self: o.Peer == e.n.ID()})
	}
	return list, nil
}

func (e engine) Plan(ctx context.Context, q control.PlanRequest) (*control.PlanReply, error) {
	id, err := e.n.resolve(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	_, card, err := e.n.header(ctx, id, func(control.Event) error { return nil })
	if err != nil {
		return nil, err
	}
	more, err := readMachines(q.WhatIf)
	if err != nil {
		return nil, err
	}
	p, err := e.n.plan(ctx, id, card, q.PromptTokens, q.NewTokens, q.Constraints)
	if err != nil && (len(more) == 0 || !mayHelp(err)) {
		return nil, told(err)
	}
	r := &control.PlanReply{Model: id.String()}
	if err == nil {
		r = e.n.planReply(id, p, q.Constraints)
	} else {
		r.NoPlan = told(err).Error()
	}
	if len(more) > 0 {
		if r.WhatIf, err = e.n.whatIf(ctx, id, card, q, r, more); err != nil {
			return nil, told(err)
		}
	}
	if r.NoPlan != "" {
		return r, nil
	}
	if r.Effect, err = e.n.effect(ctx, id, card, p, q); err != nil {
		return nil, err
	}
	if r.Effect != nil {
		r.Explain += explainEffect(p, r.Effect)
	}
	return r, nil
}

func (e engine) Model(ctx context.Context, q control.ModelRequest, emit func(control.Event) error) (*control.Model, error) {
	id, err := e.n.resolve(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	m, _, err := e.n.header(ctx, id, emit)
	if err != nil {
		return nil, err
	}
	v := e.n.modelView(m)
	return &v, nil
}

func (e engine) Tokenize(ctx context.Context, q control.TokenizeRequest) ([]int32, error) {
	id, err := e.n.resolve(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	m, _, err := e.n.header(ctx, id, func(control.Event) error { return nil })
	if err != nil {
		return nil, err
	}
	tok, err := e.n.tokenizer(m)
	if err != nil {
		return nil, err
	}
	return tokenize(tok, q)
}

func (e engine) Invite(_ context.Context, q control.InviteRequest) (*control.InviteReply, error) {
	info := e.n.cfg.Swarm
	if info.Public {
		return nil, fmt.Errorf("swarm %s is public: anybody joins it with its ID and a bootstrap address", info.Name)
	}
	if q.TTL == 0 {
		q.TTL = 24 * time.Hour
	}
	role := swarm.RoleMember
	if q.Role != "" {
		var err error
		if role, err = swarm.ParseRole(q.Role); err != nil {
			return nil, err
		}
	}
	token, err := e.n.swarms.CreateInvite(info.ID, role, q.TTL, e.n.Addrs())
	if err != nil {
		return nil, err
	}
	return &control.InviteReply{Invite: token}, nil
}

func (e engine) Pause(ctx context.Context, q control.DrainRequest) (*control.DrainReply, error) {
	limit := e.n.cfg.Drain
	if q.Limit != nil {
		limit = *q.Limit
	}
	handedOver, err := e.n.Pause(ctx, limit)
	return &control.DrainReply{HandedOver: handedOver}, err
}

func (e engine) Resume(context.Context) error { return e.n.Resume() }

func (e engine) Publish(ctx context.Context, q control.PublishRequest, emit func(control.Event) error) (*control.Model, error) {
	for _, u := range q.WebSeeds { // hashing may take long
		if err := artifacts.CheckWebSeed(u); err != nil {
			return nil, err
		}
	}
	m, err := e.n.publish(ctx, q.Path, q.Licence, emit)
	if err != nil {
		return nil, err
	}
	if err := addWebSeeds(ctx, m, q.WebSeeds); err != nil {
		return nil, err
	}
	v := e.n.modelView(m)
	if q.Torrents {
		if v.Torrents, err = e.n.torrentFiles(m); err != nil {
			return nil, err
		}
	}
	return &v, nil
}

func (e engine) Pull(ctx context.Context, q control.PullRequest, emit func(control.Event) error) (*control.Model, error) {
	id, err := e.n.wanted(ctx, q, emit)
	if err != nil {
		return nil, err
	}
	m, _, _, err := e.n.pull(ctx, id, q.Layers, emit)
	if err != nil {
		return nil, err
	}
	v := e.n.modelView(m)
	return &v, nil
}

func (e engine) Collect(ctx context.Context, q control.CollectRequest) (*control.CollectReply, error) {
	return e.n.collect(ctx, q)
}

func (e engine) Pin(ctx context.Context, q control.PinRequest) (*control.Model, error) {
	m, err := e.n.pin(ctx, q)
	if err != nil {
		return nil, err
	}
	v := e.n.modelView(m)
	return &v, nil
}

func (e engine) Serve(ctx context.Context, q control.ServeRequest, emit func(control.Event) error) (*control.Model, error) {
	if e.n.cfg.Client {
		return nil, errors.New("no daemon runs on this data folder: start one with 'starling serve --model MODEL'")
	}
	id, err := e.n.resolve(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	if q.All && q.Layers == nil {
		_, c, err := e.n.header(ctx, id, emit)
		if err != nil {
			return nil, err
		}
		q.Layers = &control.Layers{First: 0, Last: c.Layers - 1}
	}
	s, err := e.n.serve(ctx, id, q.Layers, q.NoDecode, q.Draft, emit)
	if err != nil {
		return nil, err
	}
	v := e.n.modelView(s.model)
	return &v, nil
}

func (e engine) Run(ctx context.Context, q control.RunRequest, emit func(control.Event) error) (*control.Account, error) {
	a, err := e.n.run(ctx, q, emit)
	return a, told(err)
}
