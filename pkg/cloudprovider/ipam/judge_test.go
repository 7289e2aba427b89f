package ipam

import (
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// judge holds what a step has led to against the model; had and shown is what
// Services had and what their statuses showed before.
func (l *life) judge(had, shown map[Key][]netip.Addr) {
	l.judgePairs()
	for _, key := range l.order {
		o := l.objects[key]
		if !l.broken {
			if unfed := l.starves(key); unfed != "" {
				l.t.Errorf("%s, but it has %v: %s %s", unfed, o.answer.Addresses, o.answer.Reason, o.answer.Message)
			}
			if !slices.Equal(o.status, o.answer.Addresses) {
				l.t.Errorf("%s shows %v and not %v", key, o.status, o.answer.Addresses)
			}
		}
		l.judgeWords(key)
		l.judgeMessage(key)
		l.judgeLosses(key, had[key])
		l.judgeGains(key, slices.Concat(had[key], shown[key]))
	}
}

// judgePairs looks for two Services on one address that do not share.
func (l *life) judgePairs() {
	for i, a := range l.order {
		for _, b := range l.order[:i] {
			for _, addr := range l.a.Assigned(a) {
				if slices.Contains(l.a.Assigned(b), addr) && !compatible(l.objects[a].spec, l.objects[b].spec) {
					l.t.Errorf("%s and %s both have %s", a, b, addr)
				}
			}
		}
	}
}

// judgeWords holds the parts of an answer against each other.
func (l *life) judgeWords(key Key) {
	r, d := l.objects[key].spec, l.objects[key].answer
	switch {
	case d.Message == "" || d.Reason == "":
		l.t.Errorf("%s has an answer without words: %+v", key, d)
	case d.Reason.OK() == (len(d.Addresses) == 0) && !d.Foreign && d.Reason != NodeAddress:
		l.t.Errorf("%s has %v with reason %s", key, d.Addresses, d.Reason)
	case d.Reason.OK() && d.Unmet == "" && contradictory(r):
		l.t.Errorf("%s asks for the impossible and is told that all is well: %+v", key, d)
	}
	if !d.Reason.OK() {
		return
	}
	for _, f := range families(r) {
		if len(of(f, d.Addresses)) == 0 && (d.Unmet == "" || d.Reason == Allocated) {
			l.t.Errorf("%s lacks %s without a word: %+v", key, f, d)
		}
	}
}

// judgeMessage holds the message of an answer to what it confirms, and an
// answer that was given before to what it would be now.
func (l *life) judgeMessage(key Key) {
	d := l.objects[key].answer
	want := d.Addresses
	if d.Foreign || !d.Reason.OK() && d.Reason != NodeAddress {
		want = nil
	}
	if got := addressesOf(config.Confirmed(d.Message)); !slices.Equal(got, want) {
		l.t.Errorf("%s has %v, but the message confirms %v: %s", key, d.Addresses, got, d.Message)
	}
	if l.broken {
		return
	}
	if now := l.a.Decide(l.request(key), l.now); !now.equal(d) {
		l.t.Errorf("%s was answered %+v, but now it is %+v", key, d, now)
	}
}

// judgeLosses looks for addresses that were taken away without a rule. The
// Service that a step is about may lose what it gave up by its own change.
func (l *life) judgeLosses(key Key, before []netip.Addr) {
	o := l.objects[key]
	for _, addr := range before {
		if slices.Contains(o.answer.Addresses, addr) || key == l.target {
			continue
		}
		_, replace := l.wrong(o.spec, addr)
		requested := false
		for _, got := range of(familyOf(addr), o.answer.Addresses) {
			p := l.pool(got)
			requested = requested || p != nil && asksFor(o.spec, p, got)
		}
		if !replace && !requested {
			l.t.Errorf("%s lost %s and has %v: %s", key, addr, o.answer.Addresses, o.answer.Message)
		}
	}
}

// judgeGains looks for addresses that were given against the rules, or out of
// order.
func (l *life) judgeGains(key Key, before []netip.Addr) {
	o := l.objects[key]
	if o.answer.Foreign {
		return
	}
	for _, addr := range o.answer.Addresses {
		if slices.Contains(before, addr) {
			continue
		}
		others := l.others(key, addr)
		for _, other := range others {
			adopted := l.by && l.objects[other.Key].answer.Foreign // neither had it from us
			if !compatible(o.spec, other) && !adopted {
				l.t.Errorf("%s got %s, which %s has or shows", key, addr, other.Key)
			}
		}
		shared := len(others) > 0
		if key == l.target && l.by {
			continue // what others wrote to its status is adopted, whatever the rules
		}
		// By a step that concerns all, who it was shared with may have gone since.
		if joining := shared || l.re && o.spec.SharingKey != ""; !l.grantable(o.spec, addr, joining) && !l.wasGrantable(o.spec, addr, joining) {
			l.t.Errorf("%s got %s, which is not for it", key, addr)
			continue
		}
		p := l.pool(addr)
		if shared || l.rough || slices.Contains(o.spec.Addresses, addr) || owner(p, addr) != "" {
			continue
		}
		l.judgeOrder(key, p, addr)
	}
}

// wasGrantable is grantable by the labels that namespaces had before the step:
// a new label is told to each Service in turn, and those before it may free
// something that it waits for.
func (l *life) wasGrantable(r Request, addr netip.Addr, joining bool) bool {
	now := l.namespaces
	defer func() { l.namespaces = now }()
	l.namespaces = l.labelled
	return l.grantable(r, addr, joining)
}

// judgeOrder looks for a free address of a pool that would have been next. It
// leaves out pools where something cools down that came and went in one step,
// which the model has not seen.
func (l *life) judgeOrder(key Key, p *config.Pool, got netip.Addr) {
	for _, u := range l.a.Usage(l.now) {
		if u.Pool == p.Name && u.Family == familyOf(got) && u.Cooling != l.cooling(p, u.Family) {
			return
		}
	}
	tired := l.cools(got) || l.inUse[got]
	for _, span := range p.Ranges {
		for addr := span.From(); addr.IsValid() && !span.To().Less(addr); addr = addr.Next() {
			free := !l.inUse[addr] && len(l.others("", addr)) == 0 && !l.barred(addr) && !avoided(p, addr) && owner(p, addr) == ""
			if !free || addr.Is4() != got.Is4() || l.cools(addr) {
				continue
			}
			switch {
			case tired:
				l.t.Errorf("%s got %s, which was freed just now, though %s is free", key, got, addr)
			case p.Order == config.Lowest && addr.Less(got), p.Order == config.Highest && got.Less(addr):
				l.t.Errorf("%s got %s, though %s is free and the order is %s", key, got, addr, p.Order)
			}
		}
	}
}

// cooling returns how many free addresses of a pool were freed just now.
func (l *life) cooling(p *config.Pool, f Family) int {
	n := 0
	for addr := range l.freedAt {
		if familyOf(addr) == f && contains(p.Ranges, addr) && l.cools(addr) && !l.inUse[addr] &&
			len(l.others("", addr)) == 0 && !l.barred(addr) && !avoided(p, addr) {
			n++
		}
	}
	return n
}

// counts returns how many addresses each namespace has of each pool, besides
// reserved ones.
func (l *life) counts() map[string]int {
	out := map[string]int{}
	for _, p := range l.pools {
		for _, namespace := range []string{"shop", "web"} {
			n := l.counted(&p, Request{Namespace: namespace}, nil, nil)
			for _, r := range p.Reservations {
				for _, span := range r.Ranges { // of one address each
					has := func(r Request) bool { return r.Namespace == namespace }
					if slices.ContainsFunc(l.others("", span.From()), has) {
						n--
					}
				}
			}
			out[p.Name+" "+namespace] = n
		}
	}
	return out
}

// judgeCounts looks for namespaces that got more of a pool than they may. A
// reserved address does not count, nor does what others wrote to a status.
func (l *life) judgeCounts(before map[string]int) {
	if l.by {
		return
	}
	after := l.counts()
	for _, p := range l.pools {
		for _, namespace := range []string{"shop", "web"} {
			name := p.Name + " " + namespace
			if p.MaxPerNamespace > 0 && after[name] > before[name] && after[name] > p.MaxPerNamespace {
				l.t.Errorf("namespace %s has %d addresses of pool %s", namespace, after[name], p.Name)
			}
		}
	}
}
