package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/audit"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// frrK8s is where manifests/bgp-frr-k8s expects frr-k8s to be.
const frrK8s = "frr-k8s-system"

// byFRRK8s are the nodes with sessions in frrK8sDocument.
var byFRRK8s = []string{"n1", "n2"}

const frrK8sDocument = document + `advertisements:
- {name: lan, pools: [lan], layer2: {}}
- {name: tor, pools: [wide], bgp: {communities: ["64500:7", "64500:1:2"], localPref: 250}}
bgp:
  backend: frr-k8s
  localASN: 64500
  leavePause: 1s
  bfdProfiles: [{name: fast, receiveInterval: 100ms}]
  peers:
  - {name: r1, address: 198.51.100.1, asn: 64501, passwordSecret: ` + bgpSecret + `, nodeSelector: "kubernetes.io/hostname in (n1, n2)"}
  - {name: r2, address: "2001:db8:51::1", asn: internal, families: [IPv4, IPv6], bfdProfile: fast, nodeSelector: "kubernetes.io/hostname in (n1, n2)"}
`

// No frr-k8s runs here: what it would read is judged as the API server
// with its CRDs has it, and what it would tell is written by the test.
func TestServiceByFRRK8s(t *testing.T) {
	atRest(t)
	makeFRRK8sNamespace(t)
	overlay(t, "bgp-frr-k8s")
	defer func() { // before what the test has made goes
		must(t, installed.Configure(context.Background(), document))
		inForce(t, document)
		startMissing(t)
		waitFRRConfigurations(t)
		removeFRRK8s(t)
		restartAnnouncers(t, startAsEver)
	}()
	restartAnnouncers(t, startOnItsNode)
	must(t, installed.Configure(bounded(t), frrK8sDocument))
	inForce(t, frrK8sDocument)
	serve(t, "by-frr-k8s", "web")
	t.Run("WithoutItLayer2Works", withoutFRRK8s)
	installFRRK8s(t)
	t.Run("PeerWithoutItsSecretIsLeftOut", peerWithoutItsSecretIsLeftOut)
	t.Run("ServiceComesAndGoes", serviceByFRRK8sComesAndGoes)
	t.Run("DriftIsRepaired", driftOfFRRConfigurationIsRepaired)
	t.Run("AnnouncersWriteTheirOwnAlone", announcersWriteTheirOwnAlone)
	t.Run("SessionsAreReadBack", sessionsOfFRRK8sAreReadBack)
	t.Run("LeftoversAreDeleted", leftoversOfFRRK8sAreDeleted)
}

// restartAnnouncers ends the announcers of the nodes with sessions, and starts
// them again in some way.
func restartAnnouncers(t *testing.T, start func(node string) error) {
	t.Helper()
	for _, n := range byFRRK8s {
		must(t, installed.Announcer(n).Signal(syscall.SIGTERM))
	}
	for _, n := range byFRRK8s {
		must(t, installed.Announcer(n).Wait(bounded(t)))
		must(t, start(n))
	}
	whole(t)
}

// startAsEver starts an announcer as the other tests do, with a token that does
// not end with a Node.
func startAsEver(node string) error {
	_, err := installed.StartAnnouncer(node)
	return err
}

// startOnItsNode starts an announcer with a token that tells its node, as those
// of pods do.
func startOnItsNode(node string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kubeconfig, err := cluster.KubeconfigOn(ctx, node, product.Namespace, product.Announcer)
	if err != nil {
		return err
	}
	_, err = installed.StartAnnouncerBy(kubeconfig, node)
	return err
}

// makeFRRK8sNamespace makes the namespace, which stays with the rights in it:
// they are judged after all other tests.
func makeFRRK8sNamespace(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: frrK8s}}
	_, err := cluster.Client().CoreV1().Namespaces().Create(bounded(t), namespace, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
}

// frrK8sTypes is a file with frr-k8s's CRDs, as its module has them but for the
// format of numbers: they do not fit int32, which API servers since 1.37 mind.
func frrK8sTypes(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(frrK8sModule(t), "config/crd/bases/*.yaml"))
	must(t, err)
	if len(files) != 3 {
		t.Fatalf("frr-k8s has the CRDs %v", files)
	}
	var all []byte
	for _, path := range files {
		text, err := os.ReadFile(path)
		must(t, err)
		all = append(append(all, "---\n"...), fitting(text)...)
	}
	path := filepath.Join(t.TempDir(), "crds.yaml")
	must(t, os.WriteFile(path, all, 0o600))
	return path
}

func installFRRK8s(t *testing.T) {
	types := frrK8sTypes(t)
	_, err := cluster.Kubectl(bounded(t), "apply", "-f", types)
	must(t, err)
	_, err = cluster.Kubectl(bounded(t), "wait", "--for=condition=Established", "--timeout=60s", "-f", types)
	must(t, err)
}

func removeFRRK8s(t *testing.T) {
	_, err := cluster.Kubectl(bounded(t), "delete", "--ignore-not-found", "-f", frrK8sTypes(t))
	must(t, err)
	forgetPasswordOfFRRK8s(t)
}

// givePasswordToFRRK8s makes the Secret with the router's password.
func givePasswordToFRRK8s(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bgpSecret}, Type: corev1.SecretTypeBasicAuth, StringData: map[string]string{"password": bgpPassword},
	}
	_, err := cluster.Client().CoreV1().Secrets(frrK8s).Create(bounded(t), secret, metav1.CreateOptions{})
	must(t, err)
}

// forgetPasswordOfFRRK8s deletes it, if it is there.
func forgetPasswordOfFRRK8s(t *testing.T) {
	err := cluster.Client().CoreV1().Secrets(frrK8s).Delete(bounded(t), bgpSecret, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		must(t, err)
	}
}

func withoutFRRK8s(t *testing.T) {
	for _, n := range byFRRK8s {
		asked(t, n, "frr-k8s is not installed")
	}
	s := create(t, lab.LoadBalancer("by-frr-k8s", "near", "web"))
	reachable(t, address(t, s))
	remove(t, s)
}

// asked waits until `announcer bgp` says some things on a node.
func asked(t *testing.T, node string, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to say %q", node, words), func(ctx context.Context) error {
		out, err := installed.Ask(ctx, node, "bgp")
		for _, w := range words {
			if err == nil && !strings.Contains(out, w) {
				err = fmt.Errorf("no %q in:\n%s", w, out)
			}
		}
		return err
	})
}

// frrConfiguration is of an FRRConfiguration what is looked at here. What there
// is besides is in the golden files.
type frrConfiguration struct {
	Metadata struct {
		Name            string
		Labels          map[string]string
		OwnerReferences []struct{ Kind, Name, UID string }
	}
	Spec struct {
		NodeSelector struct{ MatchLabels map[string]string }
		BGP          struct {
			BFDProfiles []struct{ Name string }
			Routers     []struct {
				ASN       uint32
				Prefixes  []string
				Neighbors []struct {
					ASN                    uint32
					Address, DynamicASN    string
					BFDProfile             string
					DualStackAddressFamily bool
					PasswordSecret         struct{ Name, Namespace string }
					ToAdvertise            struct {
						Allowed       struct{ Prefixes []string }
						WithCommunity []struct{ Community string }
						WithLocalPref []struct{ LocalPref uint32 }
					}
				}
			}
		}
	}
}

// frrConfigurations returns what there is, by node.
func frrConfigurations(ctx context.Context) (map[string]frrConfiguration, error) {
	out, err := cluster.Kubectl(ctx, "get", "-n", frrK8s, "frrconfigurations.frrk8s.metallb.io", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct{ Items []frrConfiguration }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	found := map[string]frrConfiguration{}
	for _, o := range list.Items {
		found[strings.TrimPrefix(o.Metadata.Name, "ccm-baremetal-")] = o
	}
	return found, nil
}

// waitFRRConfigurations waits until exactly some nodes have an object.
func waitFRRConfigurations(t *testing.T, want ...string) {
	t.Helper()
	told(t, func(map[string]frrConfiguration) error { return nil }, want...)
}

// told waits until exactly some nodes have an object, and a check is content.
func told(t *testing.T, check func(map[string]frrConfiguration) error, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("FRRConfigurations of %v", want), func(ctx context.Context) error {
		found, err := frrConfigurations(ctx)
		if err != nil {
			return err
		}
		var names []string
		for n := range found {
			names = append(names, n)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			return fmt.Errorf("there are those of %v", names)
		}
		return check(found)
	})
}

// addresses checks which neighbours each object has.
func addresses(want ...string) func(map[string]frrConfiguration) error {
	return func(found map[string]frrConfiguration) error {
		for n, o := range found {
			var got []string
			for _, r := range o.Spec.BGP.Routers {
				for _, x := range r.Neighbors {
					got = append(got, x.Address)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s has %v, want %v", n, got, want)
			}
		}
		return nil
	}
}

// advertises checks which prefixes each object has for all of its neighbours.
func advertises(want ...string) func(map[string]frrConfiguration) error {
	return func(found map[string]frrConfiguration) error {
		for n, o := range found {
			if len(o.Spec.BGP.Routers) == 0 {
				return fmt.Errorf("%s has no router", n)
			}
			r := o.Spec.BGP.Routers[0]
			if !slices.Equal(r.Prefixes, want) {
				return fmt.Errorf("%s has %v, want %v", n, r.Prefixes, want)
			}
			for _, x := range r.Neighbors {
				if got := x.ToAdvertise.Allowed.Prefixes; !slices.Equal(got, want) {
					return fmt.Errorf("%s tells %s of %v, want %v", n, x.Address, got, want)
				}
			}
		}
		return nil
	}
}

func peerWithoutItsSecretIsLeftOut(t *testing.T) {
	told(t, addresses("2001:db8:51::1"), byFRRK8s...)
	asked(t, "n1", "there is no Secret "+frrK8s+"/"+bgpSecret)
	givePasswordToFRRK8s(t)
	told(t, addresses("198.51.100.1", "2001:db8:51::1"), byFRRK8s...)
	found, err := frrConfigurations(bounded(t))
	must(t, err)
	for n, o := range found {
		node, err := cluster.Client().CoreV1().Nodes().Get(bounded(t), n, metav1.GetOptions{})
		must(t, err)
		owner := o.Metadata.OwnerReferences
		if len(owner) != 1 || owner[0].Kind != "Node" || owner[0].UID != string(node.UID) {
			t.Errorf("%s is owned by %v", n, owner)
		}
		if o.Spec.NodeSelector.MatchLabels["kubernetes.io/hostname"] != n || o.Metadata.Labels["app.kubernetes.io/managed-by"] != "ccm-baremetal-announcer" {
			t.Errorf("%s: %+v", n, o)
		}
		r := o.Spec.BGP.Routers[0]
		a, b := r.Neighbors[0], r.Neighbors[1]
		if r.ASN != 64500 || a.ASN != 64501 || a.PasswordSecret.Name != bgpSecret || a.PasswordSecret.Namespace != frrK8s || a.DualStackAddressFamily {
			t.Errorf("%s: %+v", n, r)
		}
		if b.DynamicASN != "internal" || !b.DualStackAddressFamily || len(o.Spec.BGP.BFDProfiles) != 1 || b.BFDProfile != o.Spec.BGP.BFDProfiles[0].Name {
			t.Errorf("%s: %+v", n, b)
		}
	}
}

// objectWrites counts the writes of FRRConfigurations by announcers.
func objectWrites(t *testing.T, since time.Time) audit.Log {
	t.Helper()
	log, err := cluster.Audit(since)
	must(t, err)
	return log.User(product.Namespace + "/" + product.Announcer).Writes().On("frrconfigurations")
}

func serviceByFRRK8sComesAndGoes(t *testing.T) {
	began := calm(t, 2*time.Second)
	s := create(t, routedByFRRK8s("far"))
	a := address(t, s)
	told(t, advertises(a.String()+"/32"), byFRRK8s...)
	if w := objectWrites(t, began); len(w) != len(byFRRK8s) {
		t.Errorf("one Service took\n%s", w)
	}
	found, err := frrConfigurations(bounded(t))
	must(t, err)
	for n, o := range found {
		outer, inner := o.Spec.BGP.Routers[0].Neighbors[0].ToAdvertise, o.Spec.BGP.Routers[0].Neighbors[1].ToAdvertise
		if len(outer.WithCommunity) != 2 || outer.WithCommunity[0].Community != "64500:7" || outer.WithCommunity[1].Community != "large:64500:1:2" || len(outer.WithLocalPref) != 0 {
			t.Errorf("%s tells r1 %+v", n, outer)
		}
		if len(inner.WithLocalPref) != 1 || inner.WithLocalPref[0].LocalPref != 250 {
			t.Errorf("%s tells r2 %+v", n, inner)
		}
	}
	began = calm(t, 2*time.Second)
	time.Sleep(time.Duration(times(5, 120)) * time.Second)
	if w := objectWrites(t, began); len(w) != 0 {
		t.Errorf("at rest there were\n%s", w)
	}
	second := create(t, routedByFRRK8s("farther"))
	b := address(t, second)
	both := []string{a.String() + "/32", b.String() + "/32"}
	slices.Sort(both)
	told(t, advertises(both...), byFRRK8s...)
	remove(t, s)
	told(t, advertises(b.String()+"/32"), byFRRK8s...)
	remove(t, second)
	told(t, advertises(), byFRRK8s...)
}

func driftOfFRRConfigurationIsRepaired(t *testing.T) {
	began := calm(t, 2*time.Second)
	_, err := cluster.Kubectl(bounded(t), "patch", "-n", frrK8s, "frrconfigurations.frrk8s.metallb.io", "ccm-baremetal-n1", "--type=json",
		"-p", `[{"op": "remove", "path": "/spec/bgp/routers/0/neighbors/0"}]`)
	must(t, err)
	told(t, addresses("198.51.100.1", "2001:db8:51::1"), byFRRK8s...)
	_, err = cluster.Kubectl(bounded(t), "delete", "-n", frrK8s, "frrconfigurations.frrk8s.metallb.io", "ccm-baremetal-n2")
	must(t, err)
	told(t, addresses("198.51.100.1", "2001:db8:51::1"), byFRRK8s...)
	if w := objectWrites(t, began); len(w) != 2 {
		t.Errorf("that took\n%s", w)
	}
}

// The account of all announcers may write all of these objects. What an
// announcer's token says of its node limits it to its own.
func announcersWriteTheirOwnAlone(t *testing.T) {
	first, err := cluster.KubeconfigOn(bounded(t), "n1", product.Namespace, product.Announcer)
	must(t, err)
	nowhere, err := cluster.Kubeconfig(bounded(t), product.Namespace, product.Announcer)
	must(t, err)
	const elsewhere = `{"spec": {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "n2"}}}}`
	const everywhere = `{"spec": {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": null}}}}`
	const harmless = `{"metadata": {"annotations": {"a": "b"}}}`
	for name, c := range map[string]struct {
		kubeconfig, object, patch string // no patch: delete
		refused                   string // empty: done
	}{
		"its own":                    {first, "n1", harmless, ""},
		"delete its own":             {first, "n1", "", ""},
		"another one's":              {first, "n2", harmless, "an announcer writes the FRRConfiguration of its own node, which is n1"},
		"delete another one's":       {first, "n2", "", "an announcer writes the FRRConfiguration of its own node, which is n1"},
		"its own for another node":   {first, "n1", elsewhere, "an announcer selects its own node, which has the label kubernetes.io/hostname=n1"},
		"its own for all nodes":      {first, "n1", everywhere, "an announcer selects its own node, which has the label kubernetes.io/hostname=n1"},
		"with a token of no node":    {nowhere, "n1", harmless, "the token of this announcer names no node"},
		"delete with one of no node": {nowhere, "n1", "", "the token of this announcer names no node"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--kubeconfig", c.kubeconfig, "-n", frrK8s, "--dry-run=server"}
			object := []string{"frrconfigurations.frrk8s.metallb.io", "ccm-baremetal-" + c.object}
			if c.patch == "" {
				args = append(append(args, "delete", "--wait=false"), object...)
			} else {
				args = append(append(args, "patch", "--type=merge", "-p", c.patch), object...)
			}
			out, err := cluster.Kubectl(bounded(t), args...)
			said := fmt.Sprint(out, err)
			if (err != nil) != (c.refused != "") || !strings.Contains(said, c.refused) {
				t.Errorf("kubectl %v: %s\nwant it refused: %q", args, said, c.refused)
			}
		})
	}
	told(t, addresses("198.51.100.1", "2001:db8:51::1"), byFRRK8s...)
}

// report writes what frr-k8s would tell.
func report(t *testing.T, resource, object, status string, flags ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "object.json")
	must(t, os.WriteFile(path, []byte(object), 0o600))
	_, err := cluster.Kubectl(bounded(t), "apply", "-f", path)
	must(t, err)
	args := append([]string{"patch", resource, "--subresource=status", "--type=merge", "-p", `{"status": ` + status + `}`}, flags...)
	_, err = cluster.Kubectl(bounded(t), append(args, "n1")...)
	must(t, err)
}

func sessionsOfFRRK8sAreReadBack(t *testing.T) {
	const api = `"apiVersion": "frrk8s.metallb.io/v1beta1"`
	asked(t, "n1", "frr-k8s says nothing of this node")
	report(t, "frrnodestates.frrk8s.metallb.io", `{`+api+`, "kind": "FRRNodeState", "metadata": {"name": "n1"}}`,
		`{"runningConfig": "router bgp 64500\nexit\n", "lastConversionResult": "success", "lastReloadResult": "success"}`)
	report(t, "bgpsessionstates.frrk8s.metallb.io",
		`{`+api+`, "kind": "BGPSessionState", "metadata": {"name": "n1", "namespace": "`+frrK8s+`", "labels": {"frrk8s.metallb.io/node": "n1"}}}`,
		`{"node": "n1", "peer": "2001-0db8-0051-0000-0000-0000-0000-0001", "vrf": "", "bgpStatus": "Established", "bfdStatus": "up"}`, "-n", frrK8s)
	asked(t, "n1", "Established")
	eventually(t, "metrics of the session", func(ctx context.Context) error {
		out, err := cluster.Get(ctx, "n1", fmt.Sprintf("http://127.0.0.1:%d/metrics", product.HTTPPort))
		for _, line := range []string{`announcer_bgp_session_up{peer="r2"} 1`, `announcer_bgp_session_up{peer="r1"} 0`, `announcer_bgp_bfd_up{peer="r2"} 1`} {
			if err == nil && !strings.Contains(out, line+"\n") {
				err = fmt.Errorf("no %s", line)
			}
		}
		return err
	})
}

// A node whose announcer dies keeps its object, and an announcer with another
// document deletes it.
func leftoversOfFRRK8sAreDeleted(t *testing.T) {
	must(t, installed.Announcer("n2").Kill())
	must(t, installed.Configure(bounded(t), document))
	told(t, addresses("198.51.100.1", "2001:db8:51::1"), "n2")
	must(t, startOnItsNode("n2"))
	waitFRRConfigurations(t)
	must(t, installed.Ready(bounded(t)))
}
