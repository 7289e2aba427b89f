package source

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func secret(keys ...string) *corev1.Secret {
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "keys"}, Data: map[string][]byte{}}
	for _, key := range keys {
		o.Data[key] = []byte("value of " + key)
	}
	return o
}

// TestSecretIsFollowed: it is waited for, its changes are told once each, and
// neither its deletion nor an outage takes it away.
func TestSecretIsFollowed(t *testing.T) {
	api := populated(t)
	r := run(t, api, nil)
	var changes atomic.Int64
	s := r.NewSecret("keys", func() { changes.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		api.cutWatches()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	says := func(want string) {
		t.Helper()
		eventually(t, "the Secret", func() string {
			data, err := s.Data()
			got := strings.Join(slices.Sorted(maps.Keys(data)), " ")
			if err != nil {
				got = err.Error()
			}
			if got != want {
				return fmt.Sprintf("it says %q, want %q", got, want)
			}
			return ""
		})
	}
	says("there is no Secret kube-system/keys yet")
	api.put(secret())
	says("")
	api.put(secret("a"))
	says("a")
	o := secret("a")
	o.Labels = map[string]string{"changed": "yes"}
	api.put(o)
	api.put(secret("a", "b"))
	says("a b")
	if n := changes.Load(); n != 3 {
		t.Errorf("%d changes were told, want 3", n)
	}
	api.remove(secret())
	api.put(balancer("web", "later", "192.0.2.101"))
	says("a b")
	api.stop()
	says("a b")
	api.start()
	api.put(secret("c"))
	says("c")
	if got := r.log.count("value of"); got != 0 {
		t.Error("a value is in the log")
	}
}
