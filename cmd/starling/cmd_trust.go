package main

import (
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/swarm"
)

type swarmTrustCmd struct {
	Peers  []string `arg:"" optional:"" name:"peer" help:"Peer IDs to list as trusted. Without any, the list is printed."`
	Remove bool     `help:"Take the peers off the list."`
}

// Help implements kong.HelpProvider.
func (swarmTrustCmd) Help() string {
	return `With --trust listed, "run" and "plan" use the peers of this list only, and this node itself. The list is this data
folder's own: it is told to nobody, and counts in all swarms. "starling plan" and "starling swarm members" print peer IDs.

Examples:

  starling swarm trust 12D3KooW…
  starling swarm trust
  starling swarm trust --remove 12D3KooW…
  starling run --trust listed "…"`
}

// Run changes or prints the list.
func (c *swarmTrustCmd) Run(g *globals) error {
	swarms := swarm.OpenSwarms(g.Data)
	switch {
	case len(c.Peers) > 0:
		return swarms.Trust(c.Peers, c.Remove)
	case c.Remove:
		return usageError(errors.New("--remove: name the peers"))
	}
	list, err := swarms.Trusted()
	if err != nil {
		return err
	}
	for _, p := range list {
		fmt.Println(p)
	}
	return nil
}
