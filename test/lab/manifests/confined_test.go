package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/audit"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/expect"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// A right is one of a program's manifest. To list and to watch is one: who may watch
// gets the list by it, and to list alone is of no use.
type right struct {
	audit.Right
	taken       bool
	given, used time.Time // since it was taken; zero: not yet
}

// rule grants the right.
func (r *right) rule() rbacv1.PolicyRule {
	rule := r.Rule()
	if r.Verb == "watch" {
		rule.Verbs = []string{"list", "watch"}
	}
	return rule
}

// confined is a program whose account has no rights but those that are left to it.
type confined struct {
	name       string
	proxy      *lab.APIProxy
	kubeconfig string
	rights     []*right // all of its manifest
	runs       []*process
}

// process is one of it.
type process struct {
	*lab.Process
	begin int // where its log begins in the file, which may have that of an earlier process
	mark  int // how long that was when rights were taken
}

// confine puts a proxy before a program, and leaves it all its rights.
func confine(t *testing.T, name string) *confined {
	t.Helper()
	proxy, err := cluster.APIProxy()
	expect.Must(t, err)
	t.Cleanup(func() { expect.Must(t, proxy.Close()) })
	kubeconfig, err := proxy.Kubeconfig(expect.Bounded(t), product.Namespace, name)
	expect.Must(t, err)
	everywhere, err := cluster.Client().RbacV1().ClusterRoles().Get(expect.Bounded(t), name, metav1.GetOptions{})
	expect.Must(t, err)
	within, err := cluster.Client().RbacV1().Roles(product.Namespace).Get(expect.Bounded(t), name, metav1.GetOptions{})
	expect.Must(t, err)
	return &confined{
		name: name, proxy: proxy, kubeconfig: kubeconfig,
		rights: slices.Concat(rightsOf("", everywhere.Rules), rightsOf(product.Namespace, within.Rules)),
	}
}

func rightsOf(namespace string, rules []rbacv1.PolicyRule) []*right {
	var out []*right
	for _, r := range audit.Rights(namespace, rules) {
		if r.Verb != "list" {
			out = append(out, &right{Right: r})
		}
	}
	return out
}

// take takes rights away from the program, and leaves it all others.
func (c *confined) take(t *testing.T, which func(*right) bool) {
	t.Helper()
	for _, r := range c.rights {
		r.taken, r.given, r.used = which(r), time.Time{}, time.Time{}
	}
	for _, r := range c.runs {
		r.mark = len(r.Log())
	}
	c.grant(t)
}

// start starts a process of the program, whose former one may have run.
func (c *confined) start(t *testing.T, former *lab.Process, start func() (*lab.Process, error)) {
	t.Helper()
	begin := 0
	if former != nil {
		begin = len(former.Log())
	}
	started, err := start()
	expect.Must(t, err)
	c.runs = append(c.runs, &process{started, begin, begin})
}

// grant makes the roles hold the rights that are not missing.
func (c *confined) grant(t *testing.T) {
	t.Helper()
	rules := func(namespace string) []byte {
		left := []rbacv1.PolicyRule{}
		for _, r := range c.rights {
			if r.Namespace == namespace && (!r.taken || !r.given.IsZero()) {
				left = append(left, r.rule())
			}
		}
		patch, err := json.Marshal(map[string]any{"rules": left})
		expect.Must(t, err)
		return patch
	}
	client := cluster.Client().RbacV1()
	_, err := client.ClusterRoles().Patch(expect.Bounded(t), c.name, types.MergePatchType, rules(""), metav1.PatchOptions{})
	expect.Must(t, err)
	_, err = client.Roles(product.Namespace).Patch(expect.Bounded(t), c.name, types.MergePatchType, rules(product.Namespace), metav1.PatchOptions{})
	expect.Must(t, err)
}

// learn gives the program the rights that its log names, and notes which it uses
// after that. The error says of which it has done either not yet.
func (c *confined) learn(t *testing.T) error {
	t.Helper()
	for _, r := range c.runs {
		if !r.Running() {
			t.Fatalf("%s on %s has ended; nothing but a lost Lease may end it", c.name, r.Host)
		}
	}
	named, news := c.named(), false
	for _, r := range c.rights {
		if r.taken && r.given.IsZero() && named[r.Kind()] {
			r.given, news = time.Now(), true
		}
	}
	if news {
		c.grant(t)
	}
	c.noteUses(t)
	var waiting []error
	for _, r := range c.rights {
		switch {
		case r.taken && r.given.IsZero():
			waiting = append(waiting, fmt.Errorf("%s does not say that it lacks %s", c.name, r))
		case r.taken && r.used.IsZero():
			waiting = append(waiting, fmt.Errorf("%s does not use its right to %s", c.name, r))
		}
	}
	return errors.Join(waiting...)
}

// refusal is how the API server names a right that is missing.
var refusal = regexp.MustCompile(`cannot ([a-z]+) resource \\*"([a-z/]+)\\*" in API group \\*"([a-z0-9.]*)\\*"`)

// named returns the rights that the program has named since some were taken.
func (c *confined) named() map[string]bool {
	out := map[string]bool{}
	for _, run := range c.runs {
		for _, m := range refusal.FindAllStringSubmatch(run.Log()[run.mark:], -1) {
			r := audit.Right{Verb: m[1], Resource: m[2], Group: m[3]}
			if r.Verb == "list" {
				r.Verb = "watch"
			}
			out[r.Kind()] = true
		}
	}
	return out
}

// unnamed returns the rights that are missing and that the program has not named.
func (c *confined) unnamed() []string {
	named := c.named()
	var out []string
	for _, r := range c.rights {
		if r.taken && !named[r.Kind()] {
			out = append(out, r.Kind())
		}
	}
	return out
}

// unfounded returns the rights that the program has named though it had them.
func (c *confined) unfounded() []string {
	named := c.named()
	for _, r := range c.rights {
		if r.taken {
			delete(named, r.Kind())
		}
	}
	return slices.Sorted(maps.Keys(named))
}

// noteUses looks for rights that were used after they were given.
func (c *confined) noteUses(t *testing.T) {
	t.Helper()
	var since time.Time
	for _, r := range c.rights {
		if r.taken && !r.given.IsZero() && r.used.IsZero() && (since.IsZero() || r.given.Before(since)) {
			since = r.given
		}
	}
	if since.IsZero() {
		return
	}
	log, err := cluster.Audit(since)
	expect.Must(t, err)
	for _, e := range log.User(product.Namespace + "/" + c.name).Succeeded() {
		for _, r := range c.rights {
			if r.taken && r.used.IsZero() && !r.given.IsZero() && e.Time.After(r.given) && r.Covers(e) {
				r.used = e.Time
			}
		}
	}
}

// report logs how long each right took.
func (c *confined) report(t *testing.T, begin time.Time) {
	t.Helper()
	for _, r := range c.rights {
		if r.taken {
			t.Logf("%s: %s: named after %.1f s, used %.1f s later", c.name, r, r.given.Sub(begin).Seconds(), r.used.Sub(r.given).Seconds())
		}
	}
}

// show logs what the program's processes have logged.
func (c *confined) show(t *testing.T) {
	t.Helper()
	for _, r := range c.runs {
		t.Logf("the log of %s on %s:\n%s", c.name, r.Host, r.Log()[r.begin:])
	}
}
