package instances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// errUnavailable says that the hosts are not known. It says no more, because
// it ends up in events, which must not differ with the number of a port.
var errUnavailable = errors.New("the BareMetalHosts of the management cluster cannot be read; the log says why")

// Times of a session with a management cluster.
const (
	beatEvery  = 10 * time.Second // how often it is asked whether it is still there
	beatWithin = 5 * time.Second  // and how long it may take to answer
	syncWithin = time.Minute      // how long the first lists may take
	retryFirst = time.Second      // after the end of a session
	retryLast  = 30 * time.Second
)

// connect returns a client of the management cluster.
type connect func(context.Context, config.Metal3) (dynamic.Interface, error)

// A connector opens the way to a management cluster.
type connector struct {
	client    kubernetes.Interface
	own       *rest.Config
	namespace string
}

// kubeconfigKeys are where a kubeconfig may be in its Secret: Cluster API uses
// the first.
var kubeconfigKeys = []string{"value", "kubeconfig"}

// connect returns a client of the management cluster. The Secret is read each
// time, because tokens in it are replaced.
func (c *connector) connect(ctx context.Context, m config.Metal3) (dynamic.Interface, error) {
	if m.KubeconfigSecret == "" {
		return dynamic.NewForConfig(dynamic.ConfigFor(c.own))
	}
	secret, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, m.KubeconfigSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the kubeconfig of the management cluster: %w", err)
	}
	for _, key := range kubeconfigKeys {
		if text, ok := secret.Data[key]; ok {
			return fromKubeconfig(text)
		}
	}
	return nil, fmt.Errorf("secret %s/%s has no key %s", c.namespace, m.KubeconfigSecret, kubeconfigKeys[0])
}

// fromKubeconfig refuses what would run programs or read files of ours on
// behalf of whoever wrote the Secret.
func fromKubeconfig(text []byte) (dynamic.Interface, error) {
	c, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the management cluster: %w", err)
	}
	if c.ExecProvider != nil || c.AuthProvider != nil || c.BearerTokenFile != "" || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" {
		return nil, errors.New("the kubeconfig of the management cluster names a program or a file: write certificates and the token into it")
	}
	return dynamic.NewForConfig(dynamic.ConfigFor(c))
}

// metal3 follows the BareMetalHosts of one namespace of a management cluster.
// What it knows is believed as long as a session lasts that has read all of
// them; after that it is kept, and not believed.
type metal3 struct {
	connect connect
	changed func() // must not block
	log     *slog.Logger

	mu       sync.Mutex
	want     *config.Metal3 // nil: none
	restart  chan struct{}  // closed when want has changed
	from     config.Metal3  // where hosts are from
	hosts    hosts
	believed bool
	sessions int

	// read reads all hosts from the management cluster of the session.
	read func(context.Context) (hosts, error)
}

func newMetal3(connect connect, changed func(), log *slog.Logger) *metal3 {
	return &metal3{connect: connect, changed: changed, log: log, restart: make(chan struct{})}
}

// configure says where the hosts are.
func (m *metal3) configure(n config.Nodes) {
	var want *config.Metal3
	if n.Source == config.SourceMetal3 {
		want = &n.Metal3
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	same := want == nil && m.want == nil || want != nil && m.want != nil && place(*want) == place(*m.want)
	m.want = want
	if !same {
		m.believed = false
		close(m.restart)
		m.restart = make(chan struct{})
	}
}

// place is what of a configuration decides whose hosts are read.
func place(m config.Metal3) [2]string { return [2]string{m.KubeconfigSecret, m.Namespace} }

// known returns the hosts as they are known. The error says that they must not
// be believed, for the time being.
func (m *metal3) known(c config.Metal3) (hosts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if place(m.from) != place(c) {
		return hosts{}, errUnavailable
	}
	if !m.believed {
		return m.hosts, errUnavailable
	}
	return m.hosts, nil
}

// look reads the hosts once more, without their HardwareData. The error says
// that they are not known.
func (m *metal3) look(ctx context.Context, c config.Metal3) (hosts, error) {
	if _, err := m.known(c); err != nil {
		return hosts{}, err
	}
	m.mu.Lock()
	read := m.read
	m.mu.Unlock()
	found, err := read(ctx)
	if err != nil {
		m.log.Warn("hosts cannot be read, no node is deleted", "namespace", c.Namespace, "err", err)
		return hosts{}, errUnavailable
	}
	return found, nil
}

// epoch counts the sessions: across two of them, nobody has looked all the time.
func (m *metal3) epoch() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions
}

// state returns what there is to show.
func (m *metal3) state() (wanted, up bool, hosts int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.want != nil, m.believed, m.hosts.len()
}

// Run holds sessions until ctx ends.
func (m *metal3) Run(ctx context.Context) {
	pause, said := retryFirst, ""
	for ctx.Err() == nil {
		m.mu.Lock()
		want, restart := m.want, m.restart
		m.mu.Unlock()
		retry := (<-chan time.Time)(nil)
		if want != nil {
			began := time.Now()
			err := m.session(ctx, *want, restart)
			if time.Since(began) > retryLast {
				pause, said = retryFirst, ""
			}
			if err != nil && err.Error() != said && ctx.Err() == nil {
				m.log.Warn("hosts cannot be read, will retry", "namespace", want.Namespace, "err", err)
				said = err.Error()
			}
			retry = time.After(pause)
			pause = min(2*pause, retryLast)
		}
		select {
		case <-ctx.Done():
		case <-restart:
			pause, said = retryFirst, ""
		case <-retry:
		}
	}
}

// session reads the hosts and follows them until something goes wrong. Any
// trouble ends it, so that what the next one begins with is a list.
func (m *metal3) session(ctx context.Context, want config.Metal3, restart <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client, err := m.connect(ctx, want)
	if err != nil {
		return err
	}
	// A management cluster without HardwareData, or one that does not show it,
	// has the same in the status of the hosts.
	hardware := m.follow(ctx, client, want.Namespace, followed{hardwareResource, keepHardware, nil, func(error) {}})
	read := hosts{hardware: hardware.GetIndexer()}
	go func() { // nobody waits for it, so it may come after the hosts
		if cache.WaitForCacheSync(ctx.Done(), hardware.HasSynced) {
			m.changed()
		}
	}()
	informer := m.follow(ctx, client, want.Namespace, followed{hostResource, keepHost, hostIndexers, cancel})
	read.hosts = informer.GetIndexer()
	if err := m.sync(ctx, informer); err != nil {
		return err
	}
	m.begin(want, read, func(ctx context.Context) (hosts, error) { return list(ctx, client, want.Namespace) })
	defer m.end()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-restart:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
			if err := ask(ctx, client, want.Namespace); err != nil {
				return err
			}
		}
	}
}

// followed is a resource and what to do with it.
type followed struct {
	resource schema.GroupVersionResource
	keep     cache.TransformFunc
	indexers cache.Indexers
	trouble  func(error)
}

// follow keeps the objects of a resource until ctx ends.
func (m *metal3) follow(ctx context.Context, client dynamic.Interface, namespace string, f followed) cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, f.resource, namespace, 0, f.indexers, nil).Informer()
	// The setters fail only when the informer runs already.
	_ = informer.SetTransform(f.keep)
	_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			f.trouble(fmt.Errorf("follow %s: %w", f.resource.Resource, err))
		}
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				m.changed()
			}
		},
		UpdateFunc: func(was, is any) {
			if !was.(*kept).same(is.(*kept)) {
				m.changed()
			}
		},
		DeleteFunc: func(any) { m.changed() },
	})
	go informer.Run(ctx.Done())
	return informer
}

// sync waits until all hosts have been read.
func (m *metal3) sync(ctx context.Context, informer cache.SharedIndexInformer) error {
	limited, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	switch {
	case cache.WaitForCacheSync(limited.Done(), informer.HasSynced):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("list the BareMetalHosts: no answer within %s", syncWithin)
}

func (m *metal3) begin(from config.Metal3, found hosts, read func(context.Context) (hosts, error)) {
	m.mu.Lock()
	m.from, m.hosts, m.believed, m.read = from, found, true, read
	m.sessions++
	m.mu.Unlock()
	m.log.Info("hosts read", "namespace", from.Namespace, "hosts", found.len())
	m.changed()
}

func (m *metal3) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.believed = false
}

// list reads all hosts of a namespace.
func list(ctx context.Context, client dynamic.Interface, namespace string) (hosts, error) {
	ctx, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	found, err := client.Resource(hostResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return hosts{}, fmt.Errorf("list the BareMetalHosts: %w", err)
	}
	all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, hostIndexers)
	for n := range found.Items {
		host, err := keepHost(&found.Items[n])
		if err != nil {
			return hosts{}, err
		}
		_ = all.Add(host) // fails for what has no name only
	}
	return hosts{hosts: all}, nil
}

// ask asks for one host, to see whether there is an answer: a watch that hangs
// says nothing, as one does when nothing changes.
func ask(ctx context.Context, client dynamic.Interface, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	if _, err := client.Resource(hostResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("ask for a BareMetalHost: %w", err)
	}
	return nil
}
