package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Client speaks the local interface. Its methods return the node's errors as
// they are; those of a known kind are an *[Error].
type Client struct {
	http  *http.Client
	close func() // of an in-process client; nil otherwise
}

// NewClient returns a client that connects with dial.
func NewClient(dial func(ctx context.Context) (net.Conn, error)) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// Close drops idle connections; of an in-process client it ends what runs.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	if c.close != nil {
		c.close()
	}
}

// Status returns what the node knows about itself.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, "GET", "/v1/status", nil, &s)
	return s, err
}

// Network says what the node has found out about its place in the swarm; peers are asked for the time.
func (c *Client) Network(ctx context.Context) (w Network, err error) {
	err = c.call(ctx, "GET", "/v1/network", nil, &w)
	return w, err
}

// Models lists the models that the node holds or sees offered.
func (c *Client) Models(ctx context.Context) (m []Model, err error) {
	err = c.call(ctx, "GET", "/v1/models", nil, &m)
	return m, err
}

// Search finds models by words of their names, families, quants and licences.
func (c *Client) Search(ctx context.Context, q SearchRequest) (l []Listing, err error) {
	err = c.call(ctx, "POST", "/v1/search", q, &l)
	return l, err
}

// Peers lists the offers that the node sees.
func (c *Client) Peers(ctx context.Context) (p []Peer, err error) {
	err = c.call(ctx, "GET", "/v1/peers", nil, &p)
	return p, err
}

// Plan asks for a placement preview.
func (c *Client) Plan(ctx context.Context, q PlanRequest) (p PlanReply, err error) {
	err = c.call(ctx, "POST", "/v1/plan", q, &p)
	return p, err
}

// Tokenize turns a text or a conversation into a model's tokens.
func (c *Client) Tokenize(ctx context.Context, q TokenizeRequest) (tokens []int32, err error) {
	err = c.call(ctx, "POST", "/v1/tokenize", q, &tokens)
	return tokens, err
}

// Model describes a model, whose header is fetched if need be. On gets every event before the last (nil: none).
func (c *Client) Model(ctx context.Context, q ModelRequest, on func(Event)) (*Model, error) {
	ev, err := c.stream(ctx, "/v1/model", q, on)
	return ev.Model, err
}

// Collect says what of the fetched models nothing needs, and frees it if asked to.
func (c *Client) Collect(ctx context.Context, q CollectRequest) (r CollectReply, err error) {
	err = c.call(ctx, "POST", "/v1/gc", q, &r)
	return r, err
}

// Pin has layers of a model stay on the node's disk.
func (c *Client) Pin(ctx context.Context, q PinRequest) (m Model, err error) {
	err = c.call(ctx, "POST", "/v1/pin", q, &m)
	return m, err
}

// Invite asks for a one-use invitation to the node's private swarm.
func (c *Client) Invite(ctx context.Context, q InviteRequest) (r InviteReply, err error) {
	err = c.call(ctx, "POST", "/v1/invite", q, &r)
	return r, err
}

// Members lists the members of the node's private swarm.
func (c *Client) Members(ctx context.Context) (r MembersReply, err error) {
	err = c.call(ctx, "GET", "/v1/members", nil, &r)
	return r, err
}

// Revoke ends a peer's membership of the node's private swarm.
func (c *Client) Revoke(ctx context.Context, q RevokeRequest) error {
	return c.call(ctx, "POST", "/v1/revoke", q, nil)
}

// SetOwner makes a peer another owner of the node's private swarm, or ends that.
func (c *Client) SetOwner(ctx context.Context, q OwnerRequest) error {
	return c.call(ctx, "POST", "/v1/owner", q, nil)
}

// Pause makes the node take no new work of others; it returns when none is left.
func (c *Client) Pause(ctx context.Context, q DrainRequest) (r DrainReply, err error) {
	err = c.call(ctx, "POST", "/v1/pause", q, &r)
	return r, err
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context) error {
	return c.call(ctx, "POST", "/v1/resume", struct{}{}, nil)
}

// Block changes, and returns, what the node has nothing to do with.
func (c *Client) Block(ctx context.Context, q BlockRequest) (b Blocked, err error) {
	err = c.call(ctx, "POST", "/v1/block", q, &b)
	return b, err
}

// Shutdown tells the daemon to end, and doesn't wait for it.
func (c *Client) Shutdown(ctx context.Context, q DrainRequest) error {
	return c.call(ctx, "POST", "/v1/shutdown", q, nil)
}

// Publish hashes, seeds and announces a model. On gets every event before the
// last (nil: none).
func (c *Client) Publish(ctx context.Context, q PublishRequest, on func(Event)) (*Model, error) {
	ev, err := c.stream(ctx, "/v1/publish", q, on)
	return ev.Model, err
}

// Pull fetches a model's layers.
func (c *Client) Pull(ctx context.Context, q PullRequest, on func(Event)) (*Model, error) {
	ev, err := c.stream(ctx, "/v1/pull", q, on)
	return ev.Model, err
}

// Serve fetches, loads and offers a model's layers.
func (c *Client) Serve(ctx context.Context, q ServeRequest, on func(Event)) (*Model, error) {
	ev, err := c.stream(ctx, "/v1/serve", q, on)
	return ev.Model, err
}

// Run runs a prompt.
func (c *Client) Run(ctx context.Context, q RunRequest, on func(Event)) (*Account, error) {
	ev, err := c.stream(ctx, "/v1/run", q, on)
	return ev.Run, err
}

func (c *Client) do(ctx context.Context, method, path string, q any) (*http.Response, error) {
	var body io.Reader
	if q != nil {
		b, err := json.Marshal(q)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://starling"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the node: %w", err)
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		var ev Event
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxRequest)).Decode(&ev); err != nil || ev.Error == "" {
			return nil, fmt.Errorf("node answers %s to %s; is it another version of starling?", resp.Status, path)
		}
		return nil, ev.failed()
	}
	return resp, nil
}

func (c *Client) call(ctx context.Context, method, path string, q, into any) error {
	resp, err := c.do(ctx, method, path, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (c *Client) stream(ctx context.Context, path string, q any, on func(Event)) (Event, error) {
	resp, err := c.do(ctx, "POST", path, q)
	if err != nil {
		return Event{}, err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var ev Event
		if err := d.Decode(&ev); err != nil {
			if ctx.Err() != nil {
				return ev, ctx.Err()
			}
			return ev, fmt.Errorf("the node ended before its answer was complete: %w", err)
		}
		switch ev.Kind {
		case "done":
			return ev, nil
		case "error":
			return ev, ev.failed()
		}
		if on != nil {
			on(ev)
		}
	}
}
