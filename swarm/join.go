package swarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/transport"

	"github.com/starling-swarm/starling/swarm/wire"
)

// errRedeemed ends the connection over which an invite was redeemed.
var errRedeemed = errors.New("invite redeemed")

// Join makes the node with identity id a member of the swarm that the invite
// names and stores the swarm in the data folder dir. For a private swarm it
// dials the node that issued the invite, which must be running; a public
// swarm needs no contact.
func Join(ctx context.Context, id *Identity, invite string, dir string) (*Info, error) {
	token, err := wire.ParseInvite(invite)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	public, err := parseSwarmID(token.Swarm)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	store := OpenSwarms(dir)
	if public {
		i := &Info{ID: token.Swarm, Name: token.Name, Public: true, Bootstrap: token.Addrs}
		if err := store.Save(i); err != nil {
			return nil, fmt.Errorf("join: %w", err)
		}
		return i, nil
	}
	if time.Unix(token.Expires, 0).Add(wire.ClockSkew).Before(time.Now()) { // by the issuer's clock, which has the last word
		return nil, fmt.Errorf("join: the invite ran out at %s; ask for a new one", time.Unix(token.Expires, 0).UTC().Format(time.RFC3339))
	}
	admitted, err := redeem(ctx, id, token)
	if err != nil {
		return nil, fmt.Errorf("join swarm %s (%s): %w", token.Swarm, token.Name, err)
	}
	i := &Info{ID: token.Swarm, Name: admitted.Name, Owner: admitted.Owner, Bootstrap: mergeAddrs(token.Addrs, admitted.Bootstrap)}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("join: the issuer's answer is refused: %w", err)
	}
	a := newAuthority(i)
	for n := range admitted.Lists {
		l := &admitted.Lists[n]
		owner, err := a.checkList(l)
		if err != nil {
			return nil, fmt.Errorf("join: the issuer's answer is refused: %w", err)
		}
		a.take(owner, l)
	}
	if err := a.checkCertificate(&admitted.Certificate, id.ID(), time.Now()); err != nil {
		return nil, fmt.Errorf("join: the issuer's answer is refused: %w", err)
	}
	for owner, l := range a.lists {
		if err := store.put(i.ID, listName(i, owner), l.Data()); err != nil {
			return nil, fmt.Errorf("join: %w", err)
		}
	}
	if err := store.put(i.ID, certificateFile, admitted.Certificate.Data()); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if err := store.Save(i); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	return i, nil
}

// redeem dials the issuer with a host that can do nothing else.
func redeem(ctx context.Context, id *Identity, token *wire.Invite) (*wire.Admitted, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*redeemTimeout)
	defer cancel()
	issuers, err := parseBootstrap(token.Addrs)
	if err != nil {
		return nil, err
	}
	if len(issuers) == 0 {
		return nil, errors.New("the invite names no address")
	}
	// The issuer's first answer, good or bad, ends the dialling; libp2p would
	// go on to ask over its other addresses.
	type answer struct {
		a   *wire.Admitted
		err error
	}
	answers := make(chan answer, 1)
	ctx, answered := context.WithCancel(ctx)
	defer answered()
	h, err := newLibp2p(id, nil, func(ctx context.Context, conn transport.CapableConn, dialled bool) error {
		if !dialled {
			return errors.New("this host only dials")
		}
		ctx, cancel := context.WithTimeout(ctx, redeemTimeout)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		reply, err := exchange(ctx, conn, &wire.Redeem{Swarm: token.Swarm, Secret: token.Secret}, wire.MaxControl)
		var refused *wire.JoinRefused
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		a, ok := reply.(*wire.Admitted)
		if err == nil && !ok {
			return fmt.Errorf("%s answered with a frame of type %d", conn.RemotePeer(), reply.Type())
		}
		select {
		case answers <- answer{a, err}:
			answered()
		default: // asked over another transport at the same time
		}
		return errRedeemed
	})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var errs []error
	for _, issuer := range issuers {
		if issuer.ID == id.id {
			errs = append(errs, errors.New("this node made the invite itself"))
			continue
		}
		err := h.Connect(ctx, issuer)
		select {
		case got := <-answers:
			return got.a, got.err
		default:
		}
		errs = append(errs, dialError(issuer.ID, err))
	}
	return nil, errors.Join(errs...)
}

// mergeAddrs appends those of b that a lacks.
func mergeAddrs(a, b []string) []string {
	seen := map[string]bool{}
	var all []string
	for _, s := range append(a[:len(a):len(a)], b...) {
		if !seen[s] {
			seen[s], all = true, append(all, s)
		}
	}
	return all
}
