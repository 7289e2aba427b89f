package frrcluster

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestPauseEndsWhenThereIsSomethingToDo(t *testing.T) {
	now := time.Unix(1000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	seen := map[string]checked{"tor": {seen: true, again: in(5 * time.Minute)}}
	bad := errors.New("connection refused")
	const (
		stays = iota + 1
		leaves
		has // left
	)
	for name, c := range map[string]struct {
		peer      int
		passwords map[string]checked
		relook    time.Time
		err       error
		deadline  time.Time
		want      time.Duration // with err: less what jitter takes
	}{
		"nothing":                            {},
		"a Secret that nobody has looked at": {peer: stays},
		"a Secret":                           {peer: stays, passwords: seen, want: 5 * time.Minute},
		"a Secret of a peer that has left":   {peer: has, passwords: seen},
		"a leave":                            {peer: leaves, passwords: seen, want: 13 * time.Second},
		"what must not be seen":              {relook: in(9 * time.Minute), want: 9 * time.Minute},
		"the end":                            {deadline: in(11 * time.Second), want: 11 * time.Second},
		"the end that was":                   {deadline: in(-time.Second), want: 20 * time.Millisecond},
		"a failure":                          {err: bad, want: longestPause},
		"a failure with a Secret":            {peer: stays, passwords: map[string]checked{"tor": {again: in(time.Second)}}, err: bad, want: longestPause},
		"a failure with a leave":             {peer: leaves, passwords: seen, err: bad, want: 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{})
			p := plan.Peering{Pause: 3 * time.Second, Peer: config.Peer{PasswordSecret: "tor"}, Routes: []plan.Route{{Prefix: netip.MustParsePrefix("192.0.2.1/32")}}}
			if c.peer >= stays {
				s.roster.Update([]plan.Peering{p}, false, now)
			}
			if c.peer >= leaves {
				s.roster.Update(nil, false, now)
				s.roster.Applied(now)
			}
			if c.peer == has {
				s.roster.Hurry()
			}
			s.passwords, s.relook, s.outcome.err = c.passwords, c.relook, c.err
			s.attempts = attempts{failures: 20, asked: s.asked()}
			s.attempts.note(now, s.asked, c.err)
			got := s.pause(now, c.deadline)
			if least := c.want * 3 / 4; got > c.want || got < c.want && (c.want != longestPause || got < least) {
				t.Errorf("pauses %s, want %s", got, c.want)
			}
		})
	}
}
