package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

const configuration = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools:
- addresses: [198.51.100.100-198.51.100.150]
`

const service = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// What a step may take before it has failed, and what the product promises,
// twice: the machine may be busy.
const (
	patience      = time.Minute      // for a step
	buildPatience = 20 * time.Minute // for the first, which compiles both programs
	takeoverBound = 3 * time.Second
)

// story is the demo from an installed lab to its end.
type story struct {
	lab     *lab.Lab
	product *product.Product
	address netip.Addr
	seen    *observe.Observation // the client's view of the address
}

func newStory(l *lab.Lab) *story { return &story{lab: l} }

// tell runs the steps in their order and stops at the first that fails.
func (s *story) tell(ctx context.Context) error {
	for _, step := range []struct {
		title  string
		within time.Duration
		do     func(context.Context) error
	}{
		{"installing ccm-baremetal as its manifests say", buildPatience, s.install},
		{"pods on three nodes, and an ordinary Service of type LoadBalancer", patience, s.create},
		{"a client in the same network uses the address", patience, s.use},
		{"who announces it, and why", patience, s.explain},
		{"the announcing node is cut off the switch", patience, s.cut},
		{"the new owner is stopped in order (SIGTERM)", patience, s.stop},
	} {
		fmt.Println("\n==> " + step.title)
		bounded, cancel := context.WithTimeout(ctx, step.within)
		err := step.do(bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}

func (s *story) install(ctx context.Context) (err error) {
	fmt.Print(indent(configuration))
	s.product, err = product.Install(ctx, s.lab, product.Options{Config: configuration, Out: os.Stdout})
	if err != nil {
		return err
	}
	if err := s.product.Ready(ctx); err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "nodes", "-o", "wide")
}

func (s *story) create(ctx context.Context) error {
	if _, err := s.lab.RunPods(ctx, "default", "web", "n1", "n2", "n3"); err != nil {
		return err
	}
	file := s.lab.Dir() + "/web.yaml"
	if err := os.WriteFile(file, []byte(service), 0o600); err != nil {
		return err
	}
	fmt.Print(indent(service))
	created := time.Now()
	if err := s.kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	addresses, err := s.lab.WaitIngress(ctx, lab.LoadBalancer("default", "web", "web"))
	if err != nil {
		return err
	}
	s.address = addresses[0]
	fmt.Printf("it has an address %.1f s after kubectl was called\n", time.Since(created).Seconds())
	return s.kubectl(ctx, "get", "service", "web")
}

func (s *story) use(ctx context.Context) error {
	w, err := s.lab.Watch(lab.Client, 20*time.Millisecond, s.address)
	if err != nil {
		return err
	}
	s.seen = w.Of(s.address)
	if _, err := s.seen.WaitReply(ctx, time.Time{}); err != nil {
		return err
	}
	nodes := map[string]bool{}
	for range 8 {
		out, err := s.curl(ctx)
		if err != nil {
			return err
		}
		nodes[out[strings.LastIndex(out, " ")+1:]] = true
	}
	if len(nodes) < 2 {
		return fmt.Errorf("all answers came from one node")
	}
	return nil
}

// curl uses the address as a client would. It tries again for a while, because
// kube-proxy takes a second to learn of a new address.
func (s *story) curl(ctx context.Context) (string, error) {
	url := "http://" + s.address.String() + "/"
	out, err := s.lab.Run(ctx, lab.Client, "curl", "--silent", "--max-time", "5", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", url)
	if err == nil {
		fmt.Printf("$ curl %s\n%s", url, out)
	}
	return out, err
}

func (s *story) explain(ctx context.Context) error {
	if err := s.kubectl(ctx, "get", "events", "--field-selector", "involvedObject.name=web", "-o", "custom-columns=FROM:.source.component,REASON:.reason,MESSAGE:.message"); err != nil {
		return err
	}
	owner, err := s.owner(ctx)
	if err != nil {
		return err
	}
	out, err := s.product.Explain(ctx, owner, s.address.String())
	if err != nil {
		return err
	}
	fmt.Printf("$ announcer explain %s\n%s", s.address, out)
	return nil
}

// owner returns the one node that answers.
func (s *story) owner(ctx context.Context) (string, error) {
	mac, _, err := s.seen.WaitAlone(ctx, time.Now(), time.Second)
	if err != nil {
		return "", err
	}
	return s.lab.HostOf(mac), nil
}

func (s *story) cut(ctx context.Context) error {
	owner, err := s.owner(ctx)
	if err != nil {
		return err
	}
	if err := s.lab.Cut(ctx, owner); err != nil {
		return err
	}
	mark := time.Now()
	reply, err := s.seen.WaitReply(ctx, mark)
	if err != nil {
		return err
	}
	gap := reply.Time.Sub(mark)
	fmt.Printf("%s is cut off; %s answers %.2f s later (promised: about 1 s, 1.5 s at worst)\n", owner, s.lab.HostOf(reply.MAC), gap.Seconds())
	if gap > takeoverBound {
		return fmt.Errorf("that took too long")
	}
	if _, err := s.curl(ctx); err != nil {
		return err
	}

	healed := time.Now()
	if err := s.lab.Heal(ctx, owner); err != nil {
		return err
	}
	return s.settled(ctx, healed)
}

// settled waits until one node alone answers, and prints how long that took.
func (s *story) settled(ctx context.Context, since time.Time) error {
	mac, alone, err := s.seen.WaitAlone(ctx, since, 2*time.Second)
	if err != nil {
		return err
	}
	fmt.Printf("plugged in again; %s alone answers after %.2f s\n", s.lab.HostOf(mac), alone.Sub(since).Seconds())
	return nil
}

func (s *story) stop(ctx context.Context) error {
	owner, err := s.owner(ctx)
	if err != nil {
		return err
	}
	mark := time.Now()
	process := s.product.Announcer(owner)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := process.Wait(ctx); err != nil {
		return err
	}
	next, err := s.owner(ctx)
	if err != nil {
		return err
	}
	end := time.Now().Add(-200 * time.Millisecond)
	lost, asked := s.seen.Unanswered(mark, end), s.seen.Questions(mark, end)
	fmt.Printf("%s has handed over to %s and ended; %d of %d ARP requests in that time were lost\n", owner, next, len(lost), len(asked))
	if len(lost) > 0 || next == owner {
		return fmt.Errorf("want none lost, and another owner")
	}
	return s.kubectl(ctx, "get", "service", "web")
}

// kubectl shows a command and what it prints.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	out, err := s.lab.Kubectl(ctx, args...)
	fmt.Printf("$ kubectl %s\n%s", strings.Join(quoted(args), " "), out)
	return err
}

func quoted(args []string) []string {
	all := slices.Clone(args)
	for i, a := range all {
		if strings.ContainsAny(a, " *?$") {
			all[i] = "'" + a + "'"
		}
	}
	return all
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}
