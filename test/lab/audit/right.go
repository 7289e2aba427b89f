package audit

import (
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// A Right is one verb on one resource, as a rule of a role grants it.
type Right struct {
	Namespace string // empty: everywhere
	Group     string
	Resource  string // with its subresource, as "services/status"
	Verb      string
	Names     []string // of the objects; none: all objects
}

// Rights takes the rules of a role apart. The namespace is that of its binding,
// empty for a ClusterRoleBinding.
func Rights(namespace string, rules []rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, Right{namespace, group, resource, verb, rule.ResourceNames})
				}
			}
		}
	}
	return all
}

// Rule returns a rule that grants only this right.
func (r Right) Rule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}, ResourceNames: r.Names,
	}
}

// Kind is all of the right that the API server names when it refuses what it
// would grant: "patch services/status", "get leases.coordination.k8s.io".
func (r Right) Kind() string { return strings.TrimSuffix(r.Verb+" "+r.Resource+"."+r.Group, ".") }

// String is the kind of the right and the names of its objects.
func (r Right) String() string {
	return strings.TrimSpace(r.Kind() + " " + strings.Join(r.Names, ", "))
}

// Covers tells whether a request needed the right, whatever came of it.
func (r Right) Covers(e Event) bool {
	return (r.Namespace == "" || r.Namespace == e.Namespace) &&
		r.Group == e.Group && r.Resource == e.object() &&
		(len(r.Names) == 0 || slices.Contains(r.Names, e.Name)) &&
		(r.Verb == e.Verb || r.Verb == "list" && lists(e) || r.Verb == "create" && applies(e))
}

// lists tells whether a watch begins with a list. API servers before 1.34 do
// not offer that, and are asked for a list.
func lists(e Event) bool {
	return e.Verb == "watch" && strings.Contains(e.URI, "sendInitialEvents=true")
}

// applies tells whether a patch has made the object: server-side apply needs
// the right to create then.
func applies(e Event) bool { return e.Verb == "patch" && e.Code == http.StatusCreated }
