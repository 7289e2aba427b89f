package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
)

func TestThatThereIsNoPasswordIsKnownOnlyIfTheAPIServerSaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		code       int
		body, want string
		none       bool
	}{
		"there":     {code: 200, body: `{"apiVersion":"v1","kind":"Secret","data":{"password":"aHVzaA=="}}`, want: "hush"},
		"other key": {code: 200, body: `{"apiVersion":"v1","kind":"Secret","data":{"word":"aHVzaA=="}}`, none: true},
		"absent":    {code: 404, body: `{"apiVersion":"v1","kind":"Status","reason":"NotFound","code":404}`, none: true},
		"forbidden": {code: 403, body: `{"apiVersion":"v1","kind":"Status","reason":"Forbidden","code":403}`},
		"broken":    {code: 400, body: "no etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/namespaces/kube-system/secrets/tor" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				w.Write([]byte(test.body))
			}))
			defer server.Close()
			api, err := source.NewAPI(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			got, err := secrets{api, "kube-system"}.password(t.Context(), "tor")
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q (%v)", got, err)
			}
			if none := (bgp.NoPasswordError{}); errors.As(err, &none) != test.none {
				t.Errorf("there is none for sure: %v, want %v (%v)", !test.none, test.none, err)
			}
		})
	}
}
