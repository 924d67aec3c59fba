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

type swarmCmd struct {
	Create swarmCreateCmd `cmd:"" help:"Make a swarm; private unless --public."`
	Invite swarmInviteCmd `cmd:"" help:"Print an invitation to the swarm."`
	Join   swarmJoinCmd   `cmd:"" help:"Join a swarm with an invitation, or a public one by its ID."`
	List   swarmListCmd   `cmd:"" help:"List the swarms that the data folder knows."`

	Members swarmMembersCmd `cmd:"" help:"List the members of a private swarm."`
	Revoke  swarmRevokeCmd  `cmd:"" help:"End a peer's membership of a private swarm."`
	Owner   swarmOwnerCmd   `cmd:"" help:"Let a member of a private swarm invite and revoke, too."`
	Trust   swarmTrustCmd   `cmd:"" help:"List the peers that --trust listed lets see a prompt."`
}

// Help implements kong.HelpProvider.
func (swarmCmd) Help() string {
	return `A swarm is a set of nodes that find each other and work together. A private swarm has members: the node that
created it signs a certificate for each newcomer, who redeems a one-use invitation; nobody else gets a byte, and no
node of it contacts strangers. A public swarm is an ID and some addresses; anybody who knows them is in.

Whoever computes layers for you can recover your prompt. Use a private swarm of people you trust for anything private.`
}

type swarmCreateCmd struct {
	Name      string   `arg:"" help:"What people call the swarm."`
	Public    bool     `help:"Let anybody in who knows the ID."`
	Addresses []string `name:"address" placeholder:"ADDR" help:"Full multiaddr (…/p2p/PEER) of a node that newcomers can always reach."`
	JSON      bool     `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (swarmCreateCmd) Help() string {
	return `Makes a swarm and this data folder its first member. Of a private swarm the owner key stays in the data folder: keep
a copy of it ('starling key export'), since only its holder can invite others and make more owners ('starling swarm owner').

Examples:

  starling swarm create friends
  starling swarm create --public library`
}

// Run makes the swarm.
func (c *swarmCreateCmd) Run(g *globals) error {
	info, err := swarm.CreateSwarm(g.Data, c.Name, c.Public, c.Addresses)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(info)
	}
	fmt.Printf("created the %s swarm %s, ID %s\n", kind(info), printable(info.Name), info.ID)
	if info.Public {
		fmt.Println("start its first node with 'starling serve'; it prints the address with which others can join")
	} else {
		fmt.Println("start its first node with 'starling serve', then invite others with 'starling swarm invite'")
	}
	return nil
}

func kind(i *swarm.Info) string {
	if i.Public {
		return "public"
	}
	return "private"
}

type swarmInviteCmd struct {
	Role string        `enum:"member,volunteer,tracker,client" default:"member" help:"What the newcomer may do: client uses the swarm; volunteer serves models, too; tracker collects what others offer, and serves none; member does all."`
	TTL  time.Duration `name:"ttl" default:"24h" placeholder:"TIME" help:"How long the invitation can be redeemed, such as 30m or 24h."`
}

// Help implements kong.HelpProvider.
func (swarmInviteCmd) Help() string {
	return `Prints an invitation. To a private swarm it admits one peer, once, until it expires, and is redeemed by the node
that made it: run this where 'starling swarm create' was run, or on another owner's machine, while 'starling serve' runs there. Treat it like a
password. An invitation to a public swarm is its ID and addresses; it serves anybody.

Examples:

  starling swarm invite
  starling swarm invite --role client --ttl 30m
  starling swarm invite --role volunteer`
}

// Run prints an invitation.
func (c *swarmInviteCmd) Run(ctx context.Context, g *globals) error {
	if c.TTL <= 0 {
		return usageError(fmt.Errorf("a life of %v is none: --ttl takes a time such as 30m or 24h", c.TTL))
	}
	client, err := control.Dial(ctx, g.Data)
	if errors.Is(err, control.ErrNoDaemon) {
		return fmt.Errorf("no node runs on data folder %s, and it is the running node that lets the newcomer in: start it with 'starling serve', and keep it running until the invitation is redeemed", g.Data)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := client.Status(ctx)
	if err != nil {
		return err
	}
	if st.Swarm.Public { // the invitation only says where the swarm is
		invite, err := swarm.OpenSwarms(g.Data).CreateInvite(st.Swarm.ID, swarm.RoleMember, c.TTL, st.Addrs)
		if err == nil {
			fmt.Println(invite)
		}
		return err
	}
	reply, err := client.Invite(ctx, control.InviteRequest{Role: c.Role, TTL: c.TTL})
	if err != nil {
		return err
	}
	fmt.Println(reply.Invite)
	if isTerminal(os.Stdout) {
		fmt.Fprintf(os.Stderr, "on the newcomer's machine: starling swarm join INVITE, within %v and while this node runs\n", c.TTL)
	}
	return nil
}

type swarmJoinCmd struct {
	Invite    string   `arg:"" name:"invite-or-id" help:"An invitation, or the ID of a public swarm."`
	Addresses []string `arg:"" optional:"" name:"address" help:"With an ID: full multiaddrs (…/p2p/PEER) of nodes of the swarm."`
	Name      string   `placeholder:"NAME" help:"With an ID: what to call the swarm here."`
	JSON      bool     `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (swarmJoinCmd) Help() string {
	return `Joins a swarm. An invitation to a private swarm is redeemed by the node that made it, which must be running and
reachable now.

Examples:

  starling swarm join INVITE
  starling swarm join pub-abcdefghijklmnopqrstuvwx /dns4/example.org/tcp/4077/p2p/12D3KooW…`
}

// Run joins the swarm.
func (c *swarmJoinCmd) Run(ctx context.Context, g *globals) error {
	info, err := c.join(ctx, g)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(info)
	}
	fmt.Printf("joined the %s swarm %s, ID %s\n", kind(info), printable(info.Name), info.ID)
	if client, err := control.Dial(ctx, g.Data); err == nil {
		client.Close()
		fmt.Printf("the node that runs on this data folder stays in its swarm: restart it with 'starling serve --swarm %s'\n", info.ID)
		return nil
	}
	fmt.Println("see its models with 'starling models', use one with 'starling run', help with 'starling serve --model'")
	return nil
}

func (c *swarmJoinCmd) join(ctx context.Context, g *globals) (*swarm.Info, error) {
	if id := strings.TrimSpace(c.Invite); strings.HasPrefix(id, "pub-") && !strings.ContainsAny(id, ":/") {
		if len(c.Addresses) == 0 && !g.LAN {
			return nil, usageError(fmt.Errorf("no address of a node of swarm %s given: add one (…/p2p/PEER), or --lan for nodes on this network", id))
		}
		name := c.Name
		if name == "" {
			name = id
		}
		info := &swarm.Info{ID: id, Name: name, Public: true, Bootstrap: c.Addresses}
		return info, swarm.OpenSwarms(g.Data).Save(info)
	}
	if strings.HasPrefix(c.Invite, "prv-") {
		return nil, fmt.Errorf("swarm %s is private, its ID lets nobody in: ask its owner for an invitation ('starling swarm invite')", c.Invite)
	}
	if len(c.Addresses) > 0 || c.Name != "" {
		return nil, usageError(errors.New("addresses and --name go with the ID of a public swarm; an invitation has them"))
	}
	id, err := swarm.LoadIdentity(g.Data)
	if err != nil {
		return nil, err
	}
	return swarm.Join(ctx, id, strings.TrimSpace(c.Invite), g.Data)
}

type swarmListCmd struct {
	JSON bool `name:"json" help:"Print a JSON list."`
}

// Help implements kong.HelpProvider.
func (swarmListCmd) Help() string {
	return `Lists the swarms that the data folder knows. Which one a node is in is chosen with --swarm when there are several.`
}

// Run lists the swarms.
func (c *swarmListCmd) Run(g *globals) error {
	swarms := swarm.OpenSwarms(g.Data)
	list, err := swarms.List()
	if err != nil {
		return err
	}
	if c.JSON {
		if list == nil {
			list = []*swarm.Info{}
		}
		return printJSON(list)
	}
	if len(list) == 0 {
		fmt.Printf("data folder %s knows no swarm: make one with 'starling swarm create NAME', or join one with 'starling swarm join INVITE'\n", g.Data)
		return nil
	}
	return table(os.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tKIND\tID\tROLE")
		for _, i := range list {
			role := "member"
			switch {
			case i.Public:
				role = "–"
			case swarms.Owns(i.ID):
				role = "owner"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(i.Name), kind(i), i.ID, role)
		}
	})
}
