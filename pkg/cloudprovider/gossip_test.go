package cloudprovider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

func key(t *testing.T, client *fake.Clientset) []byte {
	t.Helper()
	s, err := client.CoreV1().Secrets("kube-system").Get(context.Background(), GossipSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Data[GossipSecretKey]
}

func TestB110GossipKeyIsMadeOnceWhenTheAPIServerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		began := time.Now()
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			if time.Since(began) < time.Minute {
				return true, nil, errors.New("connection refused")
			}
			return false, nil, nil
		})
		var log bytes.Buffer
		g := &gossipKey{client: client, namespace: "kube-system", log: slog.New(slog.NewTextHandler(&log, nil))}
		g.Run(context.Background())
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("took %s", took)
		}
		first := key(t, client)
		if len(first) != 32 || bytes.Equal(first, make([]byte, 32)) {
			t.Errorf("key of %d bytes", len(first))
		}
		if n := strings.Count(log.String(), "connection refused"); n != 1 {
			t.Errorf("the same trouble is told %d times", n)
		}

		g.Run(context.Background()) // the next leader
		if !bytes.Equal(key(t, client), first) {
			t.Error("written again")
		}
		for _, a := range client.Actions() {
			if verb := a.GetVerb(); verb != "create" && verb != "get" || a.GetResource().Resource != "secrets" {
				t.Errorf("more than a secret created: %s %s", verb, a.GetResource().Resource)
			}
		}
	})
}

func TestGossipKeyOfTheUserIsLeftAlone(t *testing.T) {
	own := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: GossipSecret}, Data: map[string][]byte{GossipSecretKey: []byte("mine")}}
	client := fake.NewClientset(own)
	(&gossipKey{client: client, namespace: "kube-system", log: slog.New(slog.DiscardHandler)}).Run(context.Background())
	if got := string(key(t, client)); got != "mine" {
		t.Errorf("key is %q", got)
	}
}

// What is only observed is counted once.
func TestGossipKeyIsWithheldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, fmt.Errorf("create a secret: %w", rehearse.ErrWithheld)
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		(&gossipKey{client: client, namespace: "kube-system", log: slog.New(slog.DiscardHandler)}).Run(ctx)
		if n := len(client.Actions()); n != 1 {
			t.Errorf("tried %d times", n)
		}
	})
}

func TestGossipKeyGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		(&gossipKey{client: client, namespace: "kube-system", log: slog.New(slog.DiscardHandler)}).Run(ctx)
	})
}
