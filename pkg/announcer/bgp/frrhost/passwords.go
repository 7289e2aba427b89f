package frrhost

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	rereadPasswords = 30 * time.Second // of one that has been read
	passwordWithin  = 5 * time.Second
)

// passwords reads those in Secrets, beside whoever needs them: an API server
// that hangs holds nothing up. Its methods may be called from any goroutine.
type passwords struct {
	read func(ctx context.Context, secret string) (string, error)
	news func() // is called after each attempt to read a Secret

	reading sync.WaitGroup

	mu    sync.Mutex
	known map[string]*secret
}

// secret is a password and what is known of it.
type secret struct {
	value  string    // "": not known
	before bool      // the value is an earlier announcer's, for the Secret has not been read yet
	err    error     // of the last attempt
	tried  time.Time // when that ended
	busy   bool      // another one is under way
}

var errNotRead = errors.New("the Secret has not been read yet")

func (p *passwords) secret(name string) *secret {
	if p.known[name] == nil {
		p.known[name] = &secret{err: errNotRead}
	}
	return p.known[name]
}

// recall takes a password that an announcer before this one has used, until the
// Secret has been read: that it cannot be read just now ends no session.
func (p *passwords) recall(name, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.secret(name); value != "" && s.value == "" && s.tried.IsZero() {
		s.value, s.before = value, true
	}
}

// refresh begins to read a Secret unless that has been done a moment ago.
func (p *passwords) refresh(ctx context.Context, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, again := p.secret(name), rest
	if s.value != "" && !s.before {
		again = rereadPasswords
	}
	if s.busy || time.Since(s.tried) < again {
		return
	}
	s.busy = true
	p.reading.Go(func() { p.ask(ctx, name) })
}

func (p *passwords) ask(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, passwordWithin)
	defer cancel()
	value, err := p.read(ctx, name)
	if err == nil {
		if unfit := frr.CheckPassword(value); unfit != nil {
			err = bgp.NoPasswordError{Why: unfit.Error()}
		}
	}
	p.mu.Lock()
	p.secret(name).learn(value, err)
	p.mu.Unlock()
	p.news()
}

// learn takes the outcome of an attempt. What has been read stays known
// whatever becomes of the Secret, as it does where the announcer itself speaks
// BGP; an earlier announcer's does until the Secret is known to have none.
func (s *secret) learn(value string, err error) {
	s.busy, s.tried, s.err = false, time.Now(), err
	switch none := (bgp.NoPasswordError{}); {
	case err == nil:
		s.value, s.before = value, false
	case s.before && errors.As(err, &none):
		s.value, s.before = "", false
	}
}

// get returns a password, or why it is not known.
func (p *passwords) get(name string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.secret(name)
	if s.value == "" {
		return "", s.err
	}
	return s.value, nil
}

// router is what FRR tells routers apart by.
type router struct{ vrf, name string }

func routerOf(p config.Peer) router {
	if p.Interface != "" {
		return router{p.VRF, p.Interface}
	}
	return router{p.VRF, p.Address.WithZone("").String()}
}

// passwordsIn returns the passwords in a configuration of ours.
func passwordsIn(text string) map[router]string {
	out := map[router]string{}
	if !frr.Ours(text) {
		return out
	}
	vrf := ""
	for line := range strings.Lines(text) {
		switch words := strings.Fields(line); {
		case len(words) > 1 && words[0] == "router" && words[1] == "bgp":
			vrf = ""
			if len(words) == 5 {
				vrf = words[4]
			}
		case len(words) == 4 && words[0] == "neighbor" && words[2] == "password":
			out[router{vrf, words[1]}] = words[3]
		}
	}
	return out
}
