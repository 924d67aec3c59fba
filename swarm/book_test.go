package swarm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

func bookOffer(peer string, model byte, seq uint64, ttl time.Duration) wire.Offer {
	return wire.Offer{Peer: peer, Model: [32]byte{model}, Seq: seq, TTL: uint32(ttl / time.Second)}
}

// listing shows a book's live offers as "peer model seq remaining".
func listing(b *offerBook, now time.Time) string {
	s := ""
	for _, h := range b.all(now) {
		s += fmt.Sprintf("%s %d %d %ds; ", h.Offer.Peer, h.Offer.Model[0], h.Offer.Seq, h.Remaining)
	}
	return s
}

func TestBook(t *testing.T) {
	t0 := time.Unix(1_700_000_000, 0)
	b := newOfferBook()
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	push := func(now time.Time, peer string, seq uint64, models ...byte) error {
		var os []wire.Offer
		for _, m := range models {
			os = append(os, bookOffer(peer, m, seq, time.Minute))
		}
		_, err := b.push(peer, 1, seq, os, now)
		return err
	}
	want := func(now time.Time, list string) {
		t.Helper()
		if got := listing(b, now); got != list {
			t.Errorf("at %v the book says\n%s, want\n%s", now.Sub(t0), got, list)
		}
	}
	hear := func(now time.Time, o wire.Offer, left time.Duration, via string) error {
		return b.hear(o, left, via, now)
	}

	if err := push(at(0), "A", 10, 1, 2); err != nil {
		t.Fatal(err)
	}
	want(at(0), "A 1 10 60s; A 2 10 60s; ")
	want(at(59*time.Second), "A 1 10 1s; A 2 10 1s; ")

	// A push replaces all; an older one, and older hearsay, are refused.
	if err := push(at(time.Second), "A", 11, 1); err != nil {
		t.Fatal(err)
	}
	if err := push(at(time.Second), "A", 10, 1, 2); !errors.Is(err, errReplay) {
		t.Errorf("an old push: %v", err)
	}
	if err := hear(at(time.Second), bookOffer("A", 2, 10, time.Minute), time.Minute, "T"); !errors.Is(err, errReplay) {
		t.Errorf("old hearsay: %v", err)
	}
	want(at(time.Second), "A 1 11 60s; ")

	// Hearing the same again from others doesn't lengthen its life.
	if err := hear(at(50*time.Second), bookOffer("A", 1, 11, time.Minute), time.Minute, "T"); err != nil {
		t.Error(err)
	}
	want(at(50*time.Second), "A 1 11 11s; ")
	want(at(61*time.Second), "")

	// What has expired can't be replayed.
	if err := hear(at(62*time.Second), bookOffer("A", 1, 11, time.Minute), time.Minute, "T"); !errors.Is(err, errReplay) {
		t.Errorf("replay of an expired offer: %v", err)
	}
	if err := hear(at(62*time.Second), bookOffer("A", 1, 12, time.Minute), time.Minute, "T"); err != nil {
		t.Error(err)
	}
	want(at(62*time.Second), "A 1 12 60s; ")

	// A holder's remaining time counts, a century doesn't.
	hear(at(62*time.Second), bookOffer("B", 1, 1, time.Minute), 7*time.Second, "T")
	hear(at(62*time.Second), bookOffer("C", 1, 1, 100*365*24*time.Hour), 100*365*24*time.Hour, "T")
	want(at(62*time.Second), "A 1 12 60s; B 1 1 7s; C 1 1 600s; ")

	// T doesn't hold B's any more; C came from someone else.
	hear(at(63*time.Second), bookOffer("C", 1, 2, time.Minute), time.Minute, "U")
	b.retain("T", func(o *wire.Offer) bool { return o.Peer == "A" })
	want(at(63*time.Second), "A 1 12 59s; C 1 2 60s; ")

	// Withdrawal: nothing older comes back.
	if err := push(at(64*time.Second), "A", 13); err != nil {
		t.Error(err)
	}
	if err := hear(at(64*time.Second), bookOffer("A", 1, 13, time.Minute), time.Minute, "U"); !errors.Is(err, errReplay) {
		t.Errorf("hearsay after withdrawal: %v", err)
	}
	want(at(64*time.Second), "C 1 2 59s; ")

	// What has ended in a sleep counts no longer, unless somebody still says it.
	b.age(58*time.Second, at(64*time.Second))
	want(at(64*time.Second), "C 1 2 1s; ")
	b.age(time.Second, at(64*time.Second))
	want(at(64*time.Second), "")
	if err := hear(at(64*time.Second), bookOffer("C", 1, 2, time.Minute), 9*time.Second, "U"); err != nil {
		t.Error(err)
	}
	want(at(64*time.Second), "C 1 2 9s; ")
}

func TestBookSeesTwoNodesWithOneKey(t *testing.T) {
	b := newOfferBook()
	now := time.Unix(1_700_000_000, 0)
	seq := uint64(0)
	push := func(instance uint64) bool {
		seq++
		conflict, err := b.push("A", instance, seq, nil, now)
		if err != nil && !errors.Is(err, errReplay) {
			t.Fatal(err)
		}
		return conflict
	}
	for _, i := range []uint64{1, 1, 2, 2, 3} { // restarts
		if push(i) {
			t.Errorf("a restart as %d looks like a second node", i)
		}
	}
	if !push(2) {
		t.Error("an instance that comes back is not noticed")
	}
	if !push(3) {
		t.Error("the other one is not told")
	}
}

func TestBookIsBounded(t *testing.T) {
	b := newOfferBook()
	now := time.Unix(1_700_000_000, 0)
	for i := range maxBookPeers {
		if err := b.hear(bookOffer(fmt.Sprint(i), 1, 1, time.Minute), time.Minute, "T", now); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.hear(bookOffer("one more", 1, 1, time.Minute), time.Minute, "T", now); err == nil {
		t.Error("the book grows without end")
	}
	now = now.Add(forgetAfter + 2*time.Minute)
	if err := b.hear(bookOffer("one more", 1, 1, time.Minute), time.Minute, "T", now); err != nil {
		t.Errorf("room isn't reclaimed: %v", err)
	}
}
