package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

type swarmMembersCmd struct {
	JSON bool `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (swarmMembersCmd) Help() string {
	return `Lists the members of the private swarm. On the data folder of its only owner that is everybody who was ever admitted;
elsewhere those that it has let in and that the running node has met. Peers that were revoked are shown with the rest.`
}

// Run lists the members.
func (c *swarmMembersCmd) Run(ctx context.Context, g *globals) error {
	r, err := listMembers(ctx, g)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(r)
	}
	err = table(os.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "PEER\tROLE\tSTATE\tUNTIL")
		for _, m := range r.Members {
			role, until := m.Role, "–"
			if role == "" {
				role = "–"
			}
			if m.Owner {
				role += ", owner"
			}
			if !m.Expires.IsZero() {
				until = m.Expires.Local().Format("2006-01-02")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(m.Peer), printable(role), memberState(&m), until)
		}
	})
	if err == nil && !r.All {
		fmt.Println("there may be others: each owner's data folder knows whom it let in")
	}
	return err
}

func memberState(m *control.Member) string {
	switch {
	case m.Revoked:
		return "revoked"
	case m.Self:
		return "this node"
	case m.Connected:
		return "connected"
	case !m.Expires.IsZero() && m.Expires.Before(time.Now()):
		return "expired"
	}
	return "away"
}

// listMembers asks the running node, or reads the data folder where none runs.
func listMembers(ctx context.Context, g *globals) (r control.MembersReply, err error) {
	client, err := control.Dial(ctx, g.Data)
	if err == nil {
		defer client.Close()
		return client.Members(ctx)
	}
	if !errors.Is(err, control.ErrNoDaemon) {
		return r, err
	}
	info, err := g.chooseSwarm()
	if err != nil {
		return r, err
	}
	id, err := swarm.LoadIdentity(g.Data)
	if err != nil {
		return r, err
	}
	list, all, err := swarm.OpenSwarms(g.Data).Members(info.ID)
	if err != nil {
		return r, err
	}
	r.All = all
	for _, m := range list {
		v := control.Member{Peer: m.Peer, Issued: m.Issued, Expires: m.Expires, Revoked: m.Revoked, Owner: m.Owner, Self: m.Peer == id.ID()}
		if m.Role.Known() {
			v.Role = m.Role.String()
		}
		r.Members = append(r.Members, v)
	}
	return r, nil
}

type swarmRevokeCmd struct {
	Peer string `arg:"" help:"The member's peer ID, or six or more characters of its end ('starling swarm members')."`
}

// Help implements kong.HelpProvider.
func (swarmRevokeCmd) Help() string {
	return `Ends a peer's membership of the private swarm, for good: that key isn't admitted again. It needs the owner key, or a peer
key that 'starling swarm owner' has made one; owners are revoked by the founder's key only. The
running node tells all members, who close their connections with the peer and don't answer it any more; a member that is
away hears of it from whomever it meets first. Without a running node the list is spread when one starts.

Example:

  starling swarm revoke 12D3KooW…`
}

// Run revokes the member.
func (c *swarmRevokeCmd) Run(ctx context.Context, g *globals) error {
	return changeMember(ctx, g, c.Peer, memberChange{
		online: func(client *control.Client, peer string) error {
			return client.Revoke(ctx, control.RevokeRequest{Peer: peer})
		},
		offline: func(s *swarm.Swarms, id, peer string) error { return s.Revoke(id, peer) },
		done:    "revoked %s",
	})
}

// memberChange is what an owner says of a member, by way of the running node or without one.
type memberChange struct {
	online  func(client *control.Client, peer string) error
	offline func(s *swarm.Swarms, id, peer string) error
	done    string // names the peer
}

// changeMember finds the member that text names and does what is wanted.
func changeMember(ctx context.Context, g *globals, text string, change memberChange) error {
	r, err := listMembers(ctx, g)
	if err != nil {
		return err
	}
	peer, err := findMember(r.Members, text)
	if err != nil {
		return err
	}
	client, err := control.Dial(ctx, g.Data)
	switch {
	case err == nil:
		defer client.Close()
		if err := change.online(client, peer); err != nil {
			return err
		}
		fmt.Printf(change.done+": the running node tells the members\n", peer)
		return nil
	case !errors.Is(err, control.ErrNoDaemon):
		return err
	}
	info, err := g.chooseSwarm()
	if err != nil {
		return err
	}
	if err := change.offline(swarm.OpenSwarms(g.Data), info.ID, peer); err != nil {
		return err
	}
	fmt.Printf(change.done+": the members hear of it once 'starling serve' runs here\n", peer)
	return nil
}

// findMember returns the peer that a text names: its ID, or the end of one that is known.
func findMember(list []control.Member, text string) (string, error) {
	end := strings.TrimPrefix(strings.TrimSpace(text), "…")
	var found []string
	for _, m := range list {
		switch {
		case m.Peer == end && m.Self, strings.HasSuffix(m.Peer, end) && len(end) >= 6 && m.Self:
			return "", errors.New("that is this node itself")
		case m.Peer == end:
			return m.Peer, nil
		case strings.HasSuffix(m.Peer, end) && len(end) >= 6:
			found = append(found, m.Peer)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%d members' IDs end in %q: give more of it", len(found), end)
	case len(end) > 32: // a peer that was never met here
		return end, nil
	}
	return "", fmt.Errorf("no member's ID ends in %q: 'starling swarm members' lists them", end)
}
