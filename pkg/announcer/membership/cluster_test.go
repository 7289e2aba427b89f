package membership

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// patience is how long a test waits for what takes milliseconds on an idle
// machine. No test depends on it when things go well: fifty members in one
// process, with the race detector and at a load of 20, take 40 s to meet.
const patience = 5 * time.Minute

// cluster is members with real sockets, each on its own loopback address.
type cluster struct {
	t         *testing.T
	port      int
	detection config.Detection
	log       *slog.Logger // of all members, if not nil

	mu    sync.Mutex
	peers map[string]netip.Addr
	live  map[string]*running
}

// running is a member whose Run runs.
type running struct {
	*Members
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned
}

// newCluster makes a cluster without members. Where a test would mind that
// somebody is taken for dead who only had to wait for a processor, it has to
// ask for config.WAN.
func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, port: freePort(t), detection: config.LAN, peers: map[string]netip.Addr{}, live: map[string]*running{}}
	t.Cleanup(func() {
		for name := range c.live {
			c.kill(name)
		}
	})
	return c
}

// freePort returns a port that nothing uses on any loopback address.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

// know lists peers without starting them.
func (c *cluster) know(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if _, ok := c.peers[name]; !ok {
			a := [4]byte{127, 0, 77}
			binary.BigEndian.PutUint16(a[2:], uint16(77<<8+1+len(c.peers)))
			c.peers[name] = netip.AddrFrom4(a)
		}
	}
}

// options are those of a member.
func (c *cluster) options(name string) Options {
	c.know(name)
	return Options{
		Name: name, Address: c.peers[name], Port: c.port,
		Log:   c.log,
		Label: "test", Keys: [][]byte{[]byte("a secret")}, Detection: c.detection,
		Peers: func() (map[string]netip.Addr, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			out := map[string]netip.Addr{}
			for name, address := range c.peers {
				out[name] = address
			}
			return out, nil
		},
	}
}

// start starts a member with these options.
func (c *cluster) start(o Options) *running {
	c.t.Helper()
	m, err := New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.run(m)
}

// run runs a member.
func (c *cluster) run(m *Members) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{m, cancel, make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := m.Run(ctx); err != nil {
			c.t.Errorf("run %s: %v", m.o.Name, err)
		}
	}()
	c.live[m.o.Name] = r
	return r
}

// startAll starts members and waits until each sees all.
func (c *cluster) startAll(names ...string) {
	c.t.Helper()
	c.know(names...)
	for _, name := range names {
		c.start(c.options(name))
	}
	c.converge()
}

// kill ends a member as a crash would: nobody is told.
func (c *cluster) kill(name string) {
	c.t.Helper()
	r := c.live[name]
	delete(c.live, name)
	r.cancel()
	<-r.done
	r.leaving.Do(func() {
		r.stop()
		<-r.published
		if err := r.list.Shutdown(); err != nil {
			c.t.Error(err)
		}
		r.tasks.close()
	})
}

// leave ends a member in the orderly way, as an announcer does: Run first.
func (c *cluster) leave(name string) {
	c.t.Helper()
	r := c.live[name]
	delete(c.live, name)
	r.cancel()
	<-r.done
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Leave(ctx); err != nil {
		c.t.Errorf("leave %s: %v", name, err)
	}
}

// names returns the live members, sorted.
func (c *cluster) names() []string {
	var out []string
	for name := range c.live {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// converge waits until each live member sees exactly the live members.
func (c *cluster) converge() time.Duration {
	c.t.Helper()
	want := fmt.Sprint(c.names())
	return c.eventually(func() string {
		for name, r := range c.live {
			var got []string
			for _, m := range r.Members.Members() {
				got = append(got, m.Name)
			}
			if fmt.Sprint(got) != want {
				return fmt.Sprintf("%s sees %v, want %s", name, got, want)
			}
		}
		return ""
	})
}

// eventually waits until wrong returns nothing, and returns how long it took.
func (c *cluster) eventually(wrong func() string) time.Duration {
	c.t.Helper()
	return eventually(c.t, wrong)
}

func eventually(t *testing.T, wrong func() string) time.Duration {
	t.Helper()
	return eventuallyEvery(t, 5*time.Millisecond, wrong)
}

// eventuallyEvery is eventually with a pace of its own.
func eventuallyEvery(t *testing.T, pace time.Duration, wrong func() string) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		text := wrong()
		if text == "" {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			t.Fatalf("after %s: %s", patience, text)
		}
		time.Sleep(pace)
	}
}

// noLeak fails the test if it ends with more goroutines than it began with.
func noLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		eventually(t, func() string {
			now := runtime.NumGoroutine()
			if now <= before {
				return ""
			}
			stacks := make([]byte, 1<<16)
			return fmt.Sprintf("%d goroutines, %d before:\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
		})
	})
}

// soak tells whether tests are to run longer, on a machine that has nothing else
// to do.
func soak() bool { return os.Getenv("CCM_SOAK") != "" }

// hold tells how long something took, in the median and at worst. With CCM_SOAK it
// also holds the median to twice the bound. Without, the machine runs other tests
// and the race detector, and what a clock shows is how long members waited for a
// processor: twenty of them, with a twentieth of one, take 6 to 17 s for what
// takes a tenth of one. What never comes fails by patience, then as ever.
func hold(t *testing.T, what string, bound time.Duration, times ...time.Duration) {
	t.Helper()
	middle, worst := median(times)
	t.Logf("%s: median %s, worst %s of %d", what, middle, worst, len(times))
	if soak() && middle > 2*bound {
		t.Errorf("%s: median is %s, want %s", what, middle, bound)
	}
}

// median returns the middle of the times and the worst.
func median(times []time.Duration) (middle, worst time.Duration) {
	slices.Sort(times)
	return times[len(times)/2], times[len(times)-1]
}

// numbered returns n names.
func numbered(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("n%02d", i+1))
	}
	return out
}
