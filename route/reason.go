package route

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// reasons says for every peer, in ID order, what it does in r or why it does nothing.
func (in *instance) reasons(r route, cost Prediction) []Reason {
	out := make([]Reason, 0, len(in.peers))
	for i := range in.peers {
		why := Reason{Peer: in.peers[i].ID}
		switch stage := slices.Index(r.peers, i); {
		case i == r.dec:
			why.Used, why.Text = true, in.decoderText(r, cost)
		case stage >= 0:
			why.Used, why.Text = true, in.stageText(stage, r, cost)
		case in.barred[i] != "":
			why.Text = in.idleText(i)
		default:
			why.Text = in.leftOutText(i, r, cost)
		}
		out = append(out, why)
	}
	return out
}

func (in *instance) stageText(stage int, r route, cost Prediction) string {
	part := cost.Ranges[stage]
	text := fmt.Sprintf("stage %d: %s; computes %s and sends %s per chunk of %d",
		stage+1, part.Layers, secondsText(part.ComputeSeconds), secondsText(part.SendSeconds), r.chunk)
	if cost.PeriodSeconds == max(part.ComputeSeconds, part.SendSeconds, part.WaitSeconds) {
		text += ", the slowest part"
	}
	text += part.diskText()
	return text + in.remarks(r.peers[stage])
}

func (in *instance) decoderText(r route, cost Prediction) string {
	part := cost.Ranges[len(cost.Ranges)-1]
	text := fmt.Sprintf("decoder: prefills %s, then decodes all layers alone", part.Layers)
	switch {
	case r.shape == Local:
		text = fmt.Sprintf("does everything alone: %s", part.Layers)
	case r.shape == Pipelined && part.Layers.Len() == 0:
		text = "decoder: output head only; decoded tokens walk the route"
	case r.shape == Pipelined:
		text = fmt.Sprintf("decoder: %s; decoded tokens walk the route", part.Layers)
	}
	if cost.PeriodSeconds == part.ComputeSeconds && len(r.peers) > 0 {
		text += "; the slowest part"
	}
	text += part.diskText() + in.remarks(r.dec)
	if r.shape != Local && in.req.PreferSelf && in.peers[r.dec].Self {
		text += fmt.Sprintf("; preferred within %.0f %%", 100*SelfMargin)
	}
	return text
}

// diskText says what it costs that weights don't fit in memory; "" where they do.
func (r *RangePrediction) diskText() string {
	if r.DiskSeconds == 0 {
		return ""
	}
	return fmt.Sprintf("; %s of each chunk it reads weights that don't fit in its memory", secondsText(r.DiskSeconds))
}

// leftOutText compares the plan with the best small change of it that uses peer i.
func (in *instance) leftOutText(i int, r route, cost Prediction) string {
	other, total := in.cheapestWith(r, i)
	if math.IsInf(total, 1) {
		return in.noPlaceText(i, r) + in.remarks(i)
	}
	var with string
	if other.dec == i {
		with = "decoding"
	} else {
		a, b := other.span(slices.Index(other.peers, i))
		with = "on " + Range{a, b}.String()
	}
	text := fmt.Sprintf("left out: with it %s the total is %s, not %s", with, secondsText(total), secondsText(cost.TotalSeconds))
	switch {
	case total < cost.TotalSeconds*(1-epsilon):
		margin, virtue := RobustMargin, "depends less on others"
		if in.req.PreferSelf && in.peers[r.dec].Self && other.dec != r.dec {
			margin, virtue = SelfMargin, "decodes on the asking user's machine"
		}
		text = fmt.Sprintf("passed over: with it %s the total is %s, not %s, but a plan that %s is preferred within %.0f %%",
			with, secondsText(total), secondsText(cost.TotalSeconds), virtue, 100*margin)
	case total <= cost.TotalSeconds*(1+epsilon):
		text = fmt.Sprintf("left out: with it %s the total is the same %s; ties go to fewer stages and lower IDs", with, secondsText(total))
	}
	return text + in.remarks(i)
}

// noPlaceText says why no single change of r can use peer i.
func (in *instance) noPlaceText(i int, r route) string {
	if in.req.forced() != "" {
		return "left out: the request forces " + in.req.forced()
	}
	if h := in.peers[i].Holds; h.Len() > 0 {
		return fmt.Sprintf("left out: holds %s, and no single change of this route has a place for that", h)
	}
	why := in.decoderFault(i, r.start(), r.shape != Pipelined, r.kv)
	return "left out: could only decode, but " + strings.TrimPrefix(why, "peer "+in.peers[i].ID+" ")
}

// idleText is the reason for a peer that no plan was compared with.
func (in *instance) idleText(i int) string {
	if why := in.barred[i]; why != "" {
		return "not usable: " + why
	}
	p := &in.peers[i]
	text := "usable for " + p.Holds.String()
	if in.undecoding(p) == "" {
		text += " and the output head"
	}
	return text + in.remarks(i)
}

// remarks are facts about peer i that its figures rest on.
func (in *instance) remarks(i int) string {
	p := &in.peers[i]
	var text string
	if p.Self {
		text += "; the asking user's machine"
	}
	if p.Load > 0 {
		text += fmt.Sprintf("; %.3g sessions running, so ×%.3g", p.Load, 1+p.Load)
	}
	if p.FailuresPerHour > 0 {
		text += fmt.Sprintf("; lost %.3g times an hour", p.FailuresPerHour)
	}
	if in.guessed[i] != "" {
		text += "; not measured, assumed: " + in.guessed[i]
	}
	if n := in.times[i]; n > 1 {
		text += fmt.Sprintf("; offered %d times, counted once", n)
	}
	return text
}
