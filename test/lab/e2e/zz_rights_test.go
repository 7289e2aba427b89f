package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/audit"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// This file's name makes its test the last: it judges what all others made the
// two programs do. A right that is missing shows as a refused request, one that
// nothing used is not needed.
func TestRightsAreExactlyThoseThatAreUsed(t *testing.T) {
	if flag.Lookup("test.run").Value.String() != "" {
		t.Skip("with -run, most of what the programs can do was not asked of them")
	}
	log, err := cluster.Audit(time.Time{})
	must(t, err)
	for _, account := range []string{product.CCM, product.Announcer} {
		mine, granted := log.User(product.Namespace+"/"+account), rights(t, account)
		if refused := mine.Forbidden().Where(beyond(granted)); len(refused) > 0 {
			t.Errorf("%s was refused:\n%s", account, refused)
		}
		for _, right := range granted {
			if len(mine.Where(right.covers)) == 0 {
				t.Errorf("%s never used its right to %s", account, right)
			}
		}
	}
}

// beyond picks the requests for resources that no right covers, down to namespace
// and name. The others were refused by an API server that had just started: for a
// moment it refuses what it grants, and its health, which everybody may ask for.
func beyond(granted []right) func(audit.Event) bool {
	return func(e audit.Event) bool {
		return e.Resource != "" && !slices.ContainsFunc(granted, func(r right) bool { return r.covers(e) })
	}
}

// A right is one verb on one resource, as a rule of a role grants it.
type right struct {
	namespace, group, resource, verb string
	names                            []string
}

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.verb, r.resource, strings.Join(r.names, ", ")))
}

func (r right) covers(e audit.Event) bool {
	object := e.Resource
	if e.Subresource != "" {
		object += "/" + e.Subresource
	}
	if r.namespace != "" && e.Namespace != r.namespace {
		return false
	}
	named := len(r.names) == 0 || slices.Contains(r.names, e.Name)
	does := e.Verb == r.verb || r.verb == "list" && lists(e) || r.verb == "create" && applies(e)
	return named && e.Group == r.group && object == r.resource && does
}

// applies tells whether a patch has made the object: server-side apply needs
// the right to create then.
func applies(e audit.Event) bool { return e.Verb == "patch" && e.Code == http.StatusCreated }

// lists tells whether a watch begins with a list. API servers before 1.34 do
// not offer that, and are asked for a list.
func lists(e audit.Event) bool {
	return e.Verb == "watch" && strings.Contains(e.URI, "sendInitialEvents=true")
}

// rights returns what the manifests grant to an account: those that every
// installation has, and those that tests have applied for what they are about.
func rights(t *testing.T, account string) []right {
	t.Helper()
	client := cluster.Client().RbacV1()
	everywhere, err := client.ClusterRoleBindings().List(bounded(t), metav1.ListOptions{})
	must(t, err)
	within, err := client.RoleBindings("").List(bounded(t), metav1.ListOptions{})
	must(t, err)
	mine := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == product.Namespace && s.Name == account
	}
	var all []right
	for _, b := range everywhere.Items {
		if slices.ContainsFunc(b.Subjects, mine) {
			role, err := client.ClusterRoles().Get(bounded(t), b.RoleRef.Name, metav1.GetOptions{})
			must(t, err)
			all = append(all, ofRules("", role.Rules)...)
		}
	}
	for _, b := range within.Items {
		if b.RoleRef.Kind == "Role" && slices.ContainsFunc(b.Subjects, mine) {
			role, err := client.Roles(b.Namespace).Get(bounded(t), b.RoleRef.Name, metav1.GetOptions{})
			must(t, err)
			all = append(all, ofRules(b.Namespace, role.Rules)...)
		}
	}
	return all
}

// The manifests that go beside manifests/base are judged only if they were
// applied, which is for the tests of what they are for.
func TestRightsOfAllManifestsWereGranted(t *testing.T) {
	if flag.Lookup("test.run").Value.String() != "" {
		t.Skip("with -run, the tests that apply them may not have run")
	}
	all := append(rights(t, product.CCM), rights(t, product.Announcer)...)
	for _, want := range []right{
		{group: "", resource: "nodes", verb: "delete"},
		{namespace: product.Namespace, resource: "secrets", verb: "get", names: []string{managementSecret}},
		{namespace: frrK8s, group: "frrk8s.metallb.io", resource: "frrconfigurations", verb: "patch"},
		{namespace: hostNamespace, group: "metal3.io", resource: "baremetalhosts", verb: "watch"},
	} {
		if !slices.ContainsFunc(all, func(r right) bool {
			return r.String() == want.String() && r.namespace == want.namespace && r.group == want.group
		}) {
			t.Errorf("not granted: %s", want)
		}
	}
}

func ofRules(namespace string, rules []rbacv1.PolicyRule) []right {
	var all []right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, right{namespace, group, resource, verb, rule.ResourceNames})
				}
			}
		}
	}
	return all
}
