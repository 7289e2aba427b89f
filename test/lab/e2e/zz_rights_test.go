package e2e

import (
	"flag"
	"slices"
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
			if len(mine.Where(right.Covers)) == 0 {
				t.Errorf("%s never used its right to %s", account, right)
			}
		}
	}
}

// beyond picks the requests for resources that no right covers, down to namespace
// and name. The others were refused by an API server that had just started: for a
// moment it refuses what it grants, and its health, which everybody may ask for.
func beyond(granted []audit.Right) func(audit.Event) bool {
	return func(e audit.Event) bool {
		return e.Resource != "" && !slices.ContainsFunc(granted, func(r audit.Right) bool { return r.Covers(e) })
	}
}

// rights returns what the manifests grant to an account: those that every
// installation has, and those that tests have applied for what they are about.
func rights(t *testing.T, account string) []audit.Right {
	t.Helper()
	client := cluster.Client().RbacV1()
	everywhere, err := client.ClusterRoleBindings().List(bounded(t), metav1.ListOptions{})
	must(t, err)
	within, err := client.RoleBindings("").List(bounded(t), metav1.ListOptions{})
	must(t, err)
	mine := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == product.Namespace && s.Name == account
	}
	var all []audit.Right
	for _, b := range everywhere.Items {
		if slices.ContainsFunc(b.Subjects, mine) {
			role, err := client.ClusterRoles().Get(bounded(t), b.RoleRef.Name, metav1.GetOptions{})
			must(t, err)
			all = append(all, audit.Rights("", role.Rules)...)
		}
	}
	for _, b := range within.Items {
		if b.RoleRef.Kind == "Role" && slices.ContainsFunc(b.Subjects, mine) {
			role, err := client.Roles(b.Namespace).Get(bounded(t), b.RoleRef.Name, metav1.GetOptions{})
			must(t, err)
			all = append(all, audit.Rights(b.Namespace, role.Rules)...)
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
	for _, want := range []audit.Right{
		{Group: "", Resource: "nodes", Verb: "delete"},
		{Namespace: product.Namespace, Resource: "secrets", Verb: "get", Names: []string{managementSecret}},
		{Namespace: frrK8s, Group: "frrk8s.metallb.io", Resource: "frrconfigurations", Verb: "patch"},
		{Namespace: hostNamespace, Group: "metal3.io", Resource: "baremetalhosts", Verb: "watch"},
	} {
		if !slices.ContainsFunc(all, func(r audit.Right) bool {
			return r.Namespace == want.Namespace && r.String() == want.String()
		}) {
			t.Errorf("not granted: %s", want)
		}
	}
}
