package l2

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// pinger asks one question at a time and measures how long the answer takes.
type pinger struct {
	*station
	conn  *packetConn
	frame []byte
}

func newPinger(p pair, f family) *pinger {
	t := p.client.T
	t.Helper()
	var prefixes []netip.Prefix
	for _, a := range []netip.Addr{f.vip, f.vip2, f.kernel} {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	filter, err := program(f.protocol, p.client.mac("eth0"), prefixes)
	must(t, err)
	c, err := p.client.packet(p.client.link("eth0"), f.protocol.etherType(), filter)
	must(t, err)
	t.Cleanup(func() { c.close() })
	return &pinger{station: p.station, conn: c.(*packetConn), frame: make([]byte, frameRoom)}
}

// ping returns how long the answer to one question took, at most limit.
func (p *pinger) ping(a netip.Addr, limit time.Duration) time.Duration {
	t := p.host.T
	t.Helper()
	question := p.question(a)
	start := time.Now()
	must(t, p.conn.SetReadDeadline(start.Add(limit)))
	p.send(question)
	for {
		n, _, err := p.conn.ReadFrom(p.frame)
		took := time.Since(start)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return limit
		}
		must(t, err)
		heard := station{mac: p.mac, heard: []heardFrame{{frame: p.frame[:n]}}}
		if len(heard.answers(a)) > 0 {
			return took
		}
	}
}

// latency is what many pings took, ascending.
type latency []time.Duration

func (l latency) percentile(p int) time.Duration { return l[(len(l)-1)*p/100] }

func (l latency) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, at most %s", l.percentile(50), l.percentile(99), l[len(l)-1])
}

// comparison is how long answers of the kernel took, of the speaker, and of a
// bare loop that reads and writes, which shows what the scheduler adds.
type comparison struct{ kernel, ours, bare latency }

// compare asks for an address of each in turn, so that all suffer from
// whatever else the machine does.
func compare(p pair, f family, n int, every time.Duration) comparison {
	p.client.T.Helper()
	set(p.client.T, p.speaker, p.own(f.vip))
	ask := newPinger(p, f)
	answerBarely(p, f)
	var c comparison
	of := map[netip.Addr]*latency{f.kernel: &c.kernel, f.vip: &c.ours, f.vip2: &c.bare}
	order := []netip.Addr{f.kernel, f.vip, f.vip2}
	for _, a := range order {
		ask.ping(a, patience)
	}
	for range n {
		next := time.Now()
		for _, a := range order {
			*of[a] = append(*of[a], ask.ping(a, patience))
			next = next.Add(every)
			time.Sleep(time.Until(next))
		}
		order = append(order[1:], order[0]) // who is asked first is asked when all threads sleep
	}
	for _, l := range of {
		slices.Sort(*l)
	}
	return c
}

// answerBarely answers for the second address with a frame that was made before.
func answerBarely(p pair, f family) {
	t, own := p.node.T, p.node.mac("eth0")
	c := openFor(t, p.node, f.protocol, f.vip2)
	claimed := &claim{address: f.vip2}
	claimed.state.Store(answering)
	v := f.protocol.judge(&table{mac: own, claims: map[netip.Addr]*claim{f.vip2: claimed}}, p.station.question(f.vip2), nil)
	read, send := c.reader(), c.sender()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, frameRoom); ; {
			if _, err := read(b); err != nil {
				return
			}
			_ = send(v.reply)
		}
	}()
	t.Cleanup(func() { c.close(); <-done })
}

// The kernel answers from within the sender's own system call; we have to be
// woken. The goal is five times its p99. Where others want the CPU as well it is
// the scheduler that decides, so what fails is more than ten times the kernel's
// and also three times that of a bare loop, in each of six rounds.
func TestReplyLatencyComparedWithTheKernel(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			fits := false
			for round := 0; round < 6 && !fits; round++ {
				t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
					c := compare(newPair(t, f), f, 300, time.Millisecond)
					kernel, ours, bare := c.kernel.percentile(99), c.ours.percentile(99), c.bare.percentile(99)
					t.Logf("kernel: %s; l2: %s; bare loop: %s; ratio to the kernel %.1f",
						c.kernel, c.ours, c.bare, float64(ours)/float64(kernel))
					fits = fits || ours <= 10*kernel || ours <= 3*bare
				})
			}
			if !fits {
				t.Error("the speaker is slow, see the figures above")
			}
		})
	}
}

// Eight processes want all the CPUs there are: the answers come late, but they
// come, and most of them soon. The goals are 100 ms for p99 and 1 s for all,
// what fails is twice that in each of four rounds: others may want the CPUs too.
func TestRepliesWithStolenCPU(t *testing.T) {
	for range 8 {
		loop := exec.Command("/bin/sh", "-c", "while :; do :; done")
		loop.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		must(t, loop.Start())
		defer loop.Wait()
		defer loop.Process.Kill()
	}
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			p := newPair(t, f)
			set(t, p.speaker, p.own(f.vip))
			ask := newPinger(p, f)
			ask.ping(f.vip, patience)
			fits := false
			for round := 0; round < 4 && !fits; round++ {
				var took latency
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					took = append(took, ask.ping(f.vip, patience))
				}
				slices.Sort(took)
				t.Logf("%d requests: %s", len(took), took)
				if took[len(took)-1] >= patience {
					t.Fatal("a request was not answered at all")
				}
				fits = took[len(took)-1] < 2*time.Second && took.percentile(99) <= 200*time.Millisecond
			}
			if !fits {
				t.Error("want p99 within 200 ms, and all within 2 s")
			}
		})
	}
}

// BenchmarkLatency reports the comparison for 1,000 requests per second.
func BenchmarkLatency(b *testing.B) {
	for _, f := range families {
		b.Run(f.name, func(b *testing.B) {
			c := compare(newPair(b, f), f, max(b.N, 100), time.Millisecond)
			for name, l := range map[string]latency{"kernel": c.kernel, "l2": c.ours, "bare": c.bare} {
				b.ReportMetric(micros(l.percentile(50)), name+"-p50-us")
				b.ReportMetric(micros(l.percentile(99)), name+"-p99-us")
			}
		})
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
