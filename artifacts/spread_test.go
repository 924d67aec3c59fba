package artifacts

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/anacrolix/torrent"
)

// Nodes that fetch the same model from one seed ask it for different pieces, all of them together for each, and each node for the
// rarest first.
func TestFront(t *testing.T) {
	const nodes, size = 6, int64(256 << 20) // 128 KiB pieces
	man := &Manifest{Parts: []Part{{Size: size, Pieces: make([][32]byte, pieceCount(size))}}}
	pieces := len(man.Parts[0].Pieces)
	rng := rand.New(rand.NewPCG(3, 4))
	keys := make([]uint64, nodes)
	for i := range keys {
		var id torrent.PeerID
		for j := range id {
			id[j] = byte(rng.Uint32())
		}
		keys[i] = rankKey(id)
	}
	others := func(node int) (list []uint64) {
		return append(append(list, keys[:node]...), keys[node+1:]...)
	}
	have := make([]map[int]bool, nodes)
	for i := range have {
		have[i] = map[int]bool{}
	}
	// In each round every node gets one piece of its front, which the others see then.
	fetched := map[int]int{}
	for round := range pieces / nodes / 2 {
		holders := make([]int, pieces)
		for p := range holders {
			holders[p] = 1
			for _, h := range have {
				if h[p] {
					holders[p]++
				}
			}
		}
		for node := range nodes {
			var all []candidate
			for p := range pieces {
				if !have[node][p] {
					all = append(all, newCandidate(pieceAt{0, p}, holders[p], keys[node], others(node)))
				}
			}
			front := frontOf(man, all)
			if n := int64(len(front)) * PieceLength(size); n < leastInFront || n > mostInFront {
				t.Fatalf("round %d: a front of %d bytes", round, n)
			}
			for at := range front {
				if holders[at.piece] != 1 {
					t.Fatalf("round %d: piece %d is in front, and %d have it", round, at.piece, holders[at.piece])
				}
			}
			got := all[rng.IntN(len(front))].piece
			have[node][got] = true
			fetched[got]++
		}
	}
	twice := 0
	for _, n := range fetched {
		twice += n - 1
	}
	if twice > 0 {
		t.Errorf("the seed sent %d of %d pieces again while it had others to send", twice, len(fetched))
	}

	// What nobody has doesn't keep what somebody has from the front; where nothing is known, anything does.
	all := []candidate{newCandidate(pieceAt{0, 1}, 0, keys[0], nil), newCandidate(pieceAt{0, 2}, 3, keys[0], keys[1:])}
	frontOf(man, all)
	if all[0].piece != 2 {
		t.Errorf("piece %d comes first", all[0].piece)
	}
	if len(frontOf(man, all[1:])) != 1 || len(frontOf(man, nil)) != 0 {
		t.Error("a front of pieces that nobody has")
	}
}

// What several have is asked of them while the seed still has much that nobody else has.
func TestFetchCommonPieces(t *testing.T) {
	const layers, common = 460, 40 // 90 MB, and 8 MB that two have
	_, src, _ := publish(t, testModel{layers: layers, seed: 22})
	n := newTestNet()
	n.partly(t, "some", src, LayerRange{layers - common, layers})
	n.upload = 512 << 10
	if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	card, _ := src.Card()
	tor := n.join(t, "leecher", s)
	ctx, stop := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	peers := func() []string {
		if m.HeldBytes() == 0 {
			return []string{"some"} // whoever is dialled late would send less
		}
		return []string{"seeder", "some"}
	}
	go func() { ended <- tor.Fetch(ctx, m, m.Manifest().All(), peers, nil) }()
	for {
		changed := m.watch()
		left := SpanBytes(m.Missing(m.Manifest().All()))
		if m.Have(card.Spans(LayerRange{layers - common, layers})) {
			if left < 64<<20 { // the library looked no further by itself
				t.Errorf("%d bytes were left before what two have was here", left)
			}
			break
		}
		select {
		case <-changed:
		case err := <-ended:
			t.Fatalf("the fetch ended: %v", err)
		}
	}
	stop()
	<-ended
}
