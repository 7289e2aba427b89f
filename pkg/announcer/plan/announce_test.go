package plan

import (
	"maps"
	"testing"
)

func TestAnnouncementsKnowTheOtherMembersByTheirMACs(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {}, n2: {}, n3: {linksUntold: true}}
services:
  shop/web: {addresses: [192.0.2.10], ready: [n1]}
`)
	s.Links[0].MAC, s.Members[0].Links[0].MAC, s.Members[1].Links[0].MAC = "02:00:00:00:00:01", "02:00:00:00:00:01", "02:00:00:00:00:02"
	got := Announcements(Decide(s), s)
	if len(got) != 1 || !got[0].Yield || got[0].Returns != s.Returns || got[0].First {
		t.Fatalf("announcements %+v", got)
	}
	if want := map[string]string{"02:00:00:00:00:02": "n2"}; !maps.Equal(got[0].Peers, want) {
		t.Errorf("peers %v, want %v", got[0].Peers, want)
	}
}
