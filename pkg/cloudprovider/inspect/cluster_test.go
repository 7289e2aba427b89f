package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
	"github.com/ccm-baremetal/ccm-baremetal/test/fakeapi"
)

func waiting(name string) *v1.Service {
	svc := fakeapi.Held(name, "")
	svc.Status.LoadBalancer.Ingress = nil
	svc.Status.Conditions[0].Status, svc.Status.Conditions[0].Reason, svc.Status.Conditions[0].Message = metav1.ConditionFalse, "PoolExhausted", "no free address"
	svc.Annotations = map[string]string{wish.AnnotationPool: "full"}
	return svc
}

func TestAllocationsArePrinted(t *testing.T) {
	document := fakeapi.LAN + "- name: full\n  autoAssign: false\n  addresses: ['2001:db8::1', 198.51.100.1]\n"
	client := fake.NewClientset(fakeapi.Accepted(document), fakeapi.Held("web", "192.0.2.1"), fakeapi.Held("old", "203.0.113.7"), fakeapi.Held("f", "198.51.100.1"), waiting("db"))
	a, err := ReadAllocations(context.Background(), client, "kube-system", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		show func(*bytes.Buffer) error
		want string
	}{
		"default": {func(b *bytes.Buffer) error { return printAllocations(b, a) }, `POOL  STATE   FAMILY  SIZE  USED  FREE  WAITING
lan   active  IPv4    8     1     7     0
full  active  IPv4    1     1     0     1
full  active  IPv6    1     0     1     1

ADDRESS       POOL  SERVICE
192.0.2.1     lan   shop/web
198.51.100.1  full  shop/f
203.0.113.7   -     shop/old

WAITS    REASON         POOLS
shop/db  PoolExhausted  full
`},
		"wide": {func(b *bytes.Buffer) error { return printAllocationsWide(b, a) }, `POOL  STATE   FAMILY  SIZE  USED  FREE  WAITING
lan   active  IPv4    8     1     7     0
full  active  IPv4    1     1     0     1
full  active  IPv6    1     0     1     1

ADDRESS       POOL  SERVICE   SINCE                 REASON
192.0.2.1     lan   shop/web  2026-01-31T12:00:00Z  Allocated
198.51.100.1  full  shop/f    2026-01-31T12:00:00Z  Allocated
203.0.113.7   -     shop/old  2026-01-31T12:00:00Z  Allocated

WAITS    REASON         POOLS  SINCE  MESSAGE
shop/db  PoolExhausted  full   -      no free address
`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := c.show(&b); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.String()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	var b bytes.Buffer
	var back Allocations
	if err := printAllocationsJSON(&b, a); err != nil || json.Unmarshal(b.Bytes(), &back) != nil {
		t.Fatalf("%v: %s", err, b.String())
	}
	if diff := cmp.Diff(a, back); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAllocationsOfAnEmptyClusterHaveNoNulls(t *testing.T) {
	a, err := ReadAllocations(context.Background(), fake.NewClientset(fakeapi.Accepted(fakeapi.LAN)), "kube-system", "")
	var b bytes.Buffer
	if err != nil || printAllocationsJSON(&b, a) != nil || strings.Contains(b.String(), "null") {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestAllocationsWithoutADocumentSayWhatToDo(t *testing.T) {
	client := fake.NewClientset()
	_, err := ReadAllocations(context.Background(), client, "metal", "")
	if err == nil || !strings.Contains(err.Error(), "metal/ccm-baremetal-accepted") || !strings.Contains(err.Error(), "--cloud-config") {
		t.Error(err)
	}
	if a, err := ReadAllocations(context.Background(), client, "metal", fakeapi.File(t, "config.yaml", fakeapi.LAN)); err != nil || len(a.Pools) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	_, err = ReadAllocations(context.Background(), client, "metal", fakeapi.File(t, "config.yaml", fakeapi.LAN+"bogus: 1\n"))
	if err == nil || !strings.Contains(err.Error(), "bogus") {
		t.Error(err)
	}
}

func TestCheckConfigTellsWhatADocumentWouldDoToACluster(t *testing.T) {
	kubeconfig := fakeapi.Many(t, 7)
	const others = fakeapi.Head + "services: {handleUnclassed: false}\npools:\n- name: lan\n  addresses: [192.0.2.0/29]\n"
	moves := fakeapi.Head + "pools:\n- {name: lan, addresses: [192.0.2.0/29], namespaces: [x], onMismatch: reassign}\n- {name: new, addresses: [198.51.100.1]}\n"
	for name, c := range map[string]struct {
		document string
		code     int
		want     []string
	}{
		"nothing":       {fakeapi.LAN, 0, []string{"of 7 addresses in use 0 would change"}},
		"one moves":     {moves, 0, []string{"shop/s0  192.0.2.0  198.51.100.1", "shop/s0 moves from 192.0.2.0 to 198.51.100.1", "of 7 addresses in use 1 would change"}},
		"too many":      {others, 3, []string{"shop/s6  192.0.2.6  lost", "of 7 addresses in use 7 would change", "would refuse it", "services.allowMassChange: true"}},
		"allowed":       {strings.Replace(others, "false", "false, allowMassChange: true", 1), 0, []string{"of 7 addresses in use 7 would change"}},
		"silence":       {fakeapi.LAN + "advertisements: [{name: x, nodeSelector: a=b, layer2: {}}]\n", 3, []string{"shop/s0  192.0.2.0  unannounced", "selects a Node"}},
		"faults":        {fakeapi.LAN + "bogus: 1\n", 1, []string{"bogus"}},
		"another world": {fakeapi.LAN + "# changed\n", 0, []string{"0 would change"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := checkConfigRun(t, c.document, "--cluster", "--kubeconfig", kubeconfig, "-")
			if r.code != c.code {
				t.Errorf("exit code %d, want %d: %s", r.code, c.code, r.summary)
			}
			for _, text := range c.want {
				if !strings.Contains(r.stdout, text) {
					t.Errorf("does not say %q:\n%s", text, r.stdout)
				}
			}
		})
	}
}

func TestCheckConfigOfAClusterAsJSON(t *testing.T) {
	kubeconfig := fakeapi.Many(t, 7)
	r := checkConfigRun(t, fakeapi.Head+"services: {handleUnclassed: false}\npools: [{addresses: [192.0.2.0/29]}]\n", "--cluster", "--kubeconfig", kubeconfig, "-o", "json", "-")
	var got struct{ Files []checkedFile }
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || len(got.Files) != 1 || got.Files[0].Impact == nil {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	i := got.Files[0].Impact
	if r.code != exitRefused || i.InUse != 7 || i.Affected != 7 || len(i.Effects) != 7 || i.Effects[0].Fate != "Lost" || !strings.Contains(i.Refused, "7 of 7") || len(i.InForce) != 12 {
		t.Errorf("exit code %d: %+v", r.code, i)
	}
	if strings.Contains(r.stdout, "null") {
		t.Errorf("a null in %s", r.stdout)
	}
}

func TestClusterThatCannotBeReadIsNoFaultOfTheDocument(t *testing.T) {
	kubeconfig := fakeapi.Many(t, 1)
	for _, args := range [][]string{
		{"--cluster", "--kubeconfig", "/no/such/file", "-"},
		{"--cluster", "--kubeconfig", kubeconfig, "--context", "elsewhere", "-"},
		{"--cluster", "--kubeconfig", kubeconfig, "--cloud-config", "/no/such/file", "-"},
	} {
		if r := checkConfigRun(t, fakeapi.LAN, args...); r.code != ExitUnreadable || r.stdout != "" {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.stdout)
		}
	}
}
