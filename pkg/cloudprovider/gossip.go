package cloudprovider

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// The Secret with which the announcers encrypt what they say to each other.
// Changing a name is an API change.
const (
	GossipSecret    = "ccm-baremetal-gossip"
	GossipSecretKey = "key"
)

const (
	gossipKeyController = "gossip-key-controller"
	gossipKeyBytes      = 32
)

// A gossipKey makes the Secret, unless there is one. It is never read and
// never written again, so the right to create Secrets is all that it takes.
type gossipKey struct {
	client    kubernetes.Interface
	namespace string
	log       *slog.Logger
}

// Name returns the name under which the framework knows the controller.
func (g *gossipKey) Name() string { return gossipKeyController }

// Run tries until there is a Secret, in a rehearsal once, or ctx ends. An API server that cannot be
// reached yet, or rights that are granted later, cost no more than time.
func (g *gossipKey) Run(ctx context.Context) {
	said := ""
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := g.create(ctx)
		switch {
		case err == nil:
			g.log.Info("gossip key created", "namespace", g.namespace, "secret", GossipSecret)
			return
		case apierrors.IsAlreadyExists(err), errors.Is(err, rehearse.ErrWithheld):
			return
		case err.Error() != said:
			g.log.Warn("gossip key not created, will retry", "namespace", g.namespace, "secret", GossipSecret, "err", err)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (g *gossipKey) create(ctx context.Context) error {
	key := make([]byte, gossipKeyBytes)
	rand.Read(key) // never fails
	_, err := g.client.CoreV1().Secrets(g.namespace).Create(ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      GossipSecret,
			Namespace: g.namespace,
			Labels:    map[string]string{document.ManagedByLabel: document.ManagedBy},
		},
		Type: v1.SecretTypeOpaque,
		Data: map[string][]byte{GossipSecretKey: key},
	}, metav1.CreateOptions{FieldManager: component})
	return err
}
