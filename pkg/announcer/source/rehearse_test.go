package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// allocations shows which Services have a confirmed address.
func allocations(s plan.Snapshot) string {
	var out []string
	for _, svc := range s.Services {
		out = append(out, fmt.Sprintf("%s=%v", svc.Name, svc.Allocated))
	}
	return strings.Join(out, " ")
}

func TestRehearsalTakesForConfirmedWhatACCMWouldAdopt(t *testing.T) {
	for rehearse, want := range map[bool]string{
		true:  "judged=false metallb=true outside=false shop=true waiting=false",
		false: "judged=false metallb=false outside=false shop=true waiting=false",
	} {
		api := populated(t)
		for name, addresses := range map[string][]string{"metallb": {"192.0.2.7"}, "outside": {"203.0.113.7"}, "waiting": nil} {
			o := balancer("web", name, addresses...)
			o.Status.Conditions = nil
			api.put(o)
		}
		judged := balancer("web", "judged", "192.0.2.8")
		judged.Status.Conditions[0].Status = "False"
		api.put(judged)
		r := run(t, api, func(o *Options) { o.Rehearse = rehearse }).known(t)
		r.has(t, want, allocations)
	}
}

func TestHostSaysWhatTheKernelDoes(t *testing.T) {
	r := run(t, populated(t), func(o *Options) { o.Links.table.links[0].mtu = 1450 }).known(t)
	got := r.Host()
	if len(got) != 1 || got[0].Name != "eth0" || got[0].MTU != 1450 {
		t.Errorf("got %+v", got)
	}
}

func TestTheGreaterReversePathFilterCounts(t *testing.T) {
	for _, c := range []struct {
		all, own string
		want     int
	}{{"0\n", "0\n", 0}, {"0\n", "1\n", 1}, {"1\n", "0\n", 1}, {"1\n", "2\n", 2}, {"", "1\n", -1}, {"x\n", "1\n", -1}} {
		dir := t.TempDir()
		for _, f := range []struct{ link, text string }{{"all", c.all}, {"eth0", c.own}} {
			if f.text == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Join(dir, f.link), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, f.link, "rp_filter"), []byte(f.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := reversePath(dir, "eth0"); got != c.want {
			t.Errorf("all %q, own %q: %d, want %d", c.all, c.own, got, c.want)
		}
	}
	if !slices.Contains([]int{0, 1, 2}, reversePath(sysctls, "lo")) {
		t.Errorf("of the loopback here: %d", reversePath(sysctls, "lo"))
	}
}
