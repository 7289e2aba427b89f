package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// stormPool has room for every storm. Nothing serves its Services, so that
// nothing is announced and the machine has its time for the API.
const stormPool = document + "- name: storm\n  autoAssign: false\n  addresses: [10.99.0.0/20]\n"

// Bounds, twice what is promised.
const (
	lagBound   = 600 * time.Millisecond
	crashBound = 40 * time.Second
)

// A storm is a namespace in which many Services are created at once. It notes
// when each was created and when it was seen with an address.
type storm struct {
	namespace string

	mu      sync.Mutex
	created map[string]time.Time
	served  map[string]time.Time
}

// newStorm makes a namespace and watches it until the test ends.
func newStorm(t *testing.T, namespace string) *storm {
	t.Helper()
	s := &storm{namespace: namespace, created: map[string]time.Time{}, served: map[string]time.Time{}}
	_, err := cluster.Client().CoreV1().Namespaces().Create(bounded(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w, err := cluster.Client().CoreV1().Services(namespace).Watch(ctx, metav1.ListOptions{})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			s.see(e)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		empty(t, namespace)
	})
	return s
}

// empty deletes the Services of a namespace. The API server takes a minute for a
// request at most, and on a busy machine that is too short for all of them.
func empty(t *testing.T, namespace string) {
	t.Helper()
	services := cluster.Client().CoreV1().Services(namespace)
	eventuallyWithin(t, 10*time.Minute, "no Service to be left in "+namespace, func(ctx context.Context) error {
		err := cluster.Client().CoreV1().RESTClient().Delete().Namespace(namespace).Resource("services").Do(ctx).Error()
		list, listErr := services.List(ctx, metav1.ListOptions{Limit: 1})
		if listErr == nil && len(list.Items) == 0 {
			return nil
		}
		return errors.Join(err, listErr, errors.New("there are some"))
	})
}

func (s *storm) see(e apiwatch.Event) {
	now := time.Now()
	svc, ok := e.Object.(*corev1.Service)
	if !ok || len(svc.Status.LoadBalancer.Ingress) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.served[svc.Name]; !known {
		s.served[svc.Name] = now
	}
}

// rage creates the Services from first to last by eight clients.
func (s *storm) rage(t *testing.T, first, last int) {
	t.Helper()
	const clients = 8
	var workers sync.WaitGroup
	for w := range clients {
		workers.Go(func() {
			for i := first + w; i < last; i += clients {
				svc := lab.LoadBalancer(s.namespace, fmt.Sprintf("s%04d", i), "nobody")
				svc.Annotations = map[string]string{"ccm-baremetal.io/pool": "storm"}
				svc.Spec.AllocateLoadBalancerNodePorts = new(bool) // there are not that many
				svc.Spec.Ports = svc.Spec.Ports[:1]
				if _, err := cluster.Client().CoreV1().Services(s.namespace).Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				s.mu.Lock()
				s.created[svc.Name] = time.Now()
				s.mu.Unlock()
			}
		})
	}
	workers.Wait()
}

// calm waits until n Services have been seen with an address, and returns when
// the last of them was.
func (s *storm) calm(t *testing.T, n int) time.Time {
	t.Helper()
	if t.Failed() {
		t.FailNow() // not all were created
	}
	var last time.Time
	eventually(t, fmt.Sprintf("%d Services to have an address", n), func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.served) < n {
			return fmt.Errorf("%d have", len(s.served))
		}
		for _, at := range s.served {
			if at.After(last) {
				last = at
			}
		}
		return nil
	})
	distinct(t, held(t, s.namespace), n)
	return last
}

// lags returns the times from creation to address, the shortest first.
func (s *storm) lags() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for name, at := range s.served {
		all = append(all, max(0, at.Sub(s.created[name])))
	}
	slices.Sort(all)
	return all
}

func TestThousandServicesAtOnce(t *testing.T) {
	atRest(t)
	const n = 1000
	temporarily(t, stormPool)
	s := newStorm(t, "storm")

	mark := time.Now()
	s.rage(t, 0, n)
	created := time.Since(mark)
	last := s.calm(t, n)
	lags := s.lags()
	t.Logf("%d Services created in %.1f s; the last had its address %.1f s after the first was asked for; lag: median %.0f ms, p99 %.0f ms, worst %.0f ms", n,
		created.Seconds(), last.Sub(mark).Seconds(), lags[n/2].Seconds()*1000, lags[n*99/100].Seconds()*1000, lags[n-1].Seconds()*1000)
	if lags[n/2] > lagBound {
		t.Errorf("the median of the lag is %s", lags[n/2])
	}
	log, err := cluster.Audit(mark)
	must(t, err)
	if patches := log.User("kube-system/ccm-baremetal").On("services/status").Writes().Succeeded(); len(patches) != n {
		t.Errorf("%d writes of services/status for %d Services:\n%s", len(patches), n, patches)
	}
	t.Run("LeaderKilledInTheMiddle", leaderKilledInTheMiddle)
	t.Run("EverythingIsListed", func(t *testing.T) { everythingIsListed(t, n) })
	t.Run("NothingIsWrittenAtRest", restOfThousands)
}

// restOfThousands waits until all that a storm has caused is written (the
// announcers write two conditions in a second each), and then looks for writes
// for a minute, in a soak for five.
func restOfThousands(t *testing.T) {
	mark := calm(t, slowly)
	time.Sleep(time.Duration(times(60, 300)) * time.Second)
	must(t, written(mark))
}

// slowly is longer than whoever could not write something waits before the next
// try.
const slowly = 12 * time.Second

// leaderKilledInTheMiddle kills the leader while Services are created, and
// leaves it to the other to serve them.
func leaderKilledInTheMiddle(t *testing.T) {
	const n = 400
	t.Cleanup(func() { keepCCMs(t) })
	s := newStorm(t, "crash")
	leader := leading(t)
	var other *lab.Process
	var said int // by the other until now, and by those in its place before
	for i := range 2 {
		if p := installed.CCM(i); p != leader {
			other, said = p, len(p.Log())
		}
	}
	var raging sync.WaitGroup
	raging.Go(func() { s.rage(t, 0, n) })
	eventually(t, "the storm to rage", func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.served) < n/6 {
			return fmt.Errorf("%d served", len(s.served))
		}
		return nil
	})
	must(t, leader.Kill())
	killed := time.Now()
	before := len(s.lags())
	raging.Wait()
	eventually(t, "the other to lead", func(context.Context) error {
		if !strings.Contains(other.Log()[said:], "Successfully acquired lease") {
			return fmt.Errorf("it runs: %v", other.Running())
		}
		return nil
	})
	leads := time.Now()
	last := s.calm(t, n)
	t.Logf("%d of %d served when the leader was killed; the other led %.1f s later, and all were served %.1f s after that",
		before, n, leads.Sub(killed).Seconds(), last.Sub(leads).Seconds())
	if before == n {
		t.Error("the leader was killed too late to show anything")
	}
	if took := last.Sub(leads); took > crashBound {
		t.Errorf("all were served %s after the other began to lead", took)
	}
	after := held(t, "crash")
	time.Sleep(2 * time.Second)
	sameHoldings(t, after, held(t, "crash"))
}

// everythingIsListed asks the command allocations about the storm.
func everythingIsListed(t *testing.T, n int) {
	begin := time.Now()
	a := allocations(t)
	t.Logf("ccm-baremetal allocations of %d Services took %.1f s", len(a.Holders), time.Since(begin).Seconds())
	seen := map[string]bool{}
	for _, h := range a.Holders {
		if h.Pool == "storm" && !seen[h.Address] {
			seen[h.Address] = true
		}
	}
	for _, p := range a.Pools {
		if p.Name == "storm" && (p.Used != len(seen) || p.Used < n || p.Free != p.Size-uint64(p.Used)) {
			t.Errorf("%+v, with %d holders", p, len(seen))
		}
	}
	if len(a.Waiting) != 0 {
		t.Errorf("waiting: %+v", a.Waiting)
	}
}

// temporarily puts a document in force until the test is over.
func temporarily(t *testing.T, text string) {
	t.Helper()
	restore(t)
	enforce(t, text)
}
