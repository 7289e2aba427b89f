package audit

import (
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRightCovers(t *testing.T) {
	var (
		patch      = Right{Resource: "services/status", Verb: "patch"}
		patchWhole = Right{Resource: "services", Verb: "patch"}
		create     = Right{Namespace: "own", Group: "x.io", Resource: "things", Verb: "create"}
		list       = Right{Namespace: "own", Resource: "configmaps", Verb: "list", Names: []string{"one", "two"}}
		watch      = Right{Namespace: "own", Resource: "configmaps", Verb: "watch", Names: []string{"one", "two"}}
	)
	status := Event{Verb: "patch", Resource: "services", Subresource: "status", Namespace: "shop", Name: "web", Code: 200}
	whole := Event{Verb: "patch", Resource: "services", Namespace: "shop", Name: "web", Code: 200}
	made := Event{Verb: "create", Group: "x.io", Resource: "things", Namespace: "own", Code: 201}
	listed := Event{Verb: "list", Resource: "configmaps", Namespace: "own", Name: "two", Code: 200, URI: "/api/v1/namespaces/own/configmaps"}
	watched := Event{Verb: "watch", Resource: "configmaps", Namespace: "own", Name: "two", Code: 200, URI: "/api/v1/namespaces/own/configmaps?watch=true"}
	for _, c := range []struct {
		name  string
		right Right
		event Event
		want  bool
	}{
		{"everywhere", patch, status, true},
		{"a subresource is not its resource", patchWhole, status, false},
		{"a resource is not its subresource", patch, whole, false},
		{"another verb", patch, but(status, func(e *Event) { e.Verb = "update" }), false},
		{"refused", patch, but(status, func(e *Event) { e.Code = 403 }), true},

		{"its namespace and group", create, made, true},
		{"another namespace", create, but(made, func(e *Event) { e.Namespace = "shop" }), false},
		{"another group", create, but(made, func(e *Event) { e.Group = "y.io" }), false},
		{"applied and made by that", create, but(made, func(e *Event) { e.Verb = "patch" }), true},
		{"applied to what was there", create, but(made, func(e *Event) { e.Verb, e.Code = "patch", 200 }), false},

		{"a list", list, listed, true},
		{"a watch is no list", list, watched, false},
		{"a watch that begins with the list", list, but(watched, func(e *Event) { e.URI += "&sendInitialEvents=true" }), true},
		{"which is a watch too", watch, but(watched, func(e *Event) { e.URI += "&sendInitialEvents=true" }), true},
		{"a list is no watch", watch, listed, false},
		{"another name", list, but(listed, func(e *Event) { e.Name = "three" }), false},
		{"all names", list, but(listed, func(e *Event) { e.Name = "" }), false},

		{"what is no resource", Right{Verb: "get"}, Event{Verb: "get", URI: "/healthz", Code: 200}, false},
	} {
		if got := c.right.Covers(c.event); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// but is an event that differs from another one.
func but(e Event, how func(*Event)) Event {
	how(&e)
	return e
}

func TestRights(t *testing.T) {
	got := Rights("own", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get", "watch"}, ResourceNames: []string{"one", "two"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
	})
	names := []string{"one", "two"}
	want := []Right{
		{"own", "", "configmaps", "get", names},
		{"own", "", "configmaps", "watch", names},
		{"own", "", "secrets", "get", names},
		{"own", "", "secrets", "watch", names},
		{"own", "coordination.k8s.io", "leases", "create", nil},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, r := range want {
		if again := Rights("own", []rbacv1.PolicyRule{r.Rule()}); !reflect.DeepEqual(again, []Right{r}) {
			t.Errorf("the rule of %s grants %v", r, again)
		}
	}
	if got := want[0].String(); got != "get configmaps one, two" {
		t.Error(got)
	}
	if got := want[4].String(); got != "create leases.coordination.k8s.io" {
		t.Error(got)
	}
}
