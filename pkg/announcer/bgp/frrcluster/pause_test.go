package frrcluster

import (
	"errors"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestPauseEndsWhenThereIsSomethingToDo(t *testing.T) {
	now := time.Unix(1000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	guarded := plan.Peering{Pause: 3 * time.Second, Peer: config.Peer{PasswordSecret: "tor"}}
	seen := map[string]checked{"tor": {seen: true, again: in(5 * time.Minute)}}
	bad := errors.New("connection refused")
	for name, c := range map[string]struct {
		members   []*member
		passwords map[string]checked
		relook    time.Time
		err       error
		deadline  time.Time
		want      time.Duration // with err: less what jitter takes
	}{
		"nothing":                            {},
		"a Secret that nobody has looked at": {members: []*member{{Peering: guarded}}},
		"a Secret":                           {members: []*member{{Peering: guarded}}, passwords: seen, want: 5 * time.Minute},
		"a Secret of a peer that has left":   {members: []*member{{Peering: guarded, over: true}}, passwords: seen},
		"a leave":                            {members: []*member{{Peering: guarded, begun: now, asked: now}}, passwords: seen, want: 10 * time.Second},
		"what must not be seen":              {relook: in(9 * time.Minute), want: 9 * time.Minute},
		"the end":                            {deadline: in(11 * time.Second), want: 11 * time.Second},
		"the end that was":                   {deadline: in(-time.Second), want: 20 * time.Millisecond},
		"a failure":                          {err: bad, want: longestPause},
		"a failure with a Secret":            {members: []*member{{Peering: guarded}}, passwords: map[string]checked{"tor": {again: in(time.Second)}}, err: bad, want: longestPause},
		"a failure with a leave":             {members: []*member{{Peering: guarded, begun: now, asked: now}}, err: bad, want: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{})
			s.roster.members, s.passwords, s.relook, s.outcome.err = c.members, c.passwords, c.relook, c.err
			s.attempts = attempts{failures: 20, asked: s.asked()}
			s.attempts.note(now, s.asked, c.err)
			got := s.pause(now, c.deadline)
			if least := c.want * 3 / 4; got > c.want || got < c.want && (c.want != longestPause || got < least) {
				t.Errorf("pauses %s, want %s", got, c.want)
			}
		})
	}
}
