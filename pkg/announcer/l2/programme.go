package l2

import "time"

// What is sent for an address, and when.
const (
	framesPerSecond = 1000 // on one link
	frameBurst      = 10   // how far the sender may catch up after it was held up

	// linkDelay is when everything is announced once more after a link came
	// up: a switch port that runs the spanning tree forwards after 30 s.
	linkDelay = 35 * time.Second

	defaultRefresh = time.Minute
)

// step is one frame of the programme that every claim goes through.
type step struct {
	kind kind
	gap  time.Duration // after the step before it; that of a refresh is configured
	rank int           // of several claims whose step is due the lowest is served first
}

// steps is a programme: one probe, the rounds of announcements of a new owner,
// then the refresh and its probe over and over. The ranks see to it that every
// address is announced once before any is announced again, and in one form
// before in both.
type steps []step

const (
	probeStep = 0
	firstStep = 1
)

// refresh is the index of the first step that is repeated for ever.
func (s steps) refresh() int { return len(s) - 2 }

// rounds are when a new owner announces an address.
var rounds = []time.Duration{
	0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
}

var (
	arpSteps = programmeOf(request, reply)
	ndpSteps = programmeOf(request)
)

// programmeOf returns the programme with one frame of each form in every round.
func programmeOf(forms ...kind) steps {
	out := steps{{kind: probe}}
	last := time.Duration(0)
	for i, at := range rounds {
		for j, form := range forms {
			out = append(out, step{kind: form, gap: at - last, rank: 2*i + j})
			last = at
		}
	}
	return append(out,
		step{kind: forms[0], rank: 2 * len(rounds)},
		step{kind: probe, rank: 2*len(rounds) + 1})
}

// lastRound is the index of the first step of the last round.
func (s steps) lastRound() int {
	i := s.refresh() - 1
	for s[i].gap == 0 {
		i--
	}
	return i
}
