package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

type swarmOwnerCmd struct {
	Peer   string `arg:"" optional:"" help:"The member's peer ID, or six or more characters of its end ('starling swarm members'). Without one, the owners are printed."`
	Remove bool   `help:"End it. Whom the peer has let in must be invited anew, and whom it has revoked may come back."`
}

// Help implements kong.HelpProvider.
func (swarmOwnerCmd) Help() string {
	return `Makes a member of the private swarm another owner: with its own peer key it invites, renews and revokes, also when the
founder's key is lost. Only who has the founder's key makes owners, ends that (--remove) and revokes them.

Examples:

  starling swarm owner 12D3KooW…
  starling swarm owner
  starling swarm owner --remove 12D3KooW…`
}

// Run makes an owner, ends one, or prints them.
func (c *swarmOwnerCmd) Run(ctx context.Context, g *globals) error {
	if c.Peer == "" {
		if c.Remove {
			return usageError(errors.New("--remove: name the peer"))
		}
		return c.print(g)
	}
	done := "%s is an owner of the swarm"
	if c.Remove {
		done = "%s is no owner any more, and whom it has let in is no member"
	}
	return changeMember(ctx, g, c.Peer, memberChange{
		online: func(client *control.Client, peer string) error {
			return client.SetOwner(ctx, control.OwnerRequest{Peer: peer, Remove: c.Remove})
		},
		offline: func(s *swarm.Swarms, id, peer string) error { return s.SetOwner(id, peer, c.Remove) },
		done:    done,
	})
}

func (c *swarmOwnerCmd) print(g *globals) error {
	info, err := g.chooseSwarm()
	if err != nil {
		return err
	}
	list, err := swarm.OpenSwarms(g.Data).Owners(info.ID)
	if err != nil {
		return err
	}
	fmt.Printf("%s (the founder's key)\n", info.Owner)
	for _, p := range list {
		fmt.Println(p)
	}
	return nil
}
