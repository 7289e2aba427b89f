package document

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/eventtext"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// The ConfigMaps; config.ConfigMapKey is the key in both. Changing a name is
// an API change.
const (
	UserConfigMap     = "ccm-baremetal"          // the user edits it
	AcceptedConfigMap = "ccm-baremetal-accepted" // we store in it what was accepted
)

// The label that marks the objects which we make ourselves. Changing it is an API
// change.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "ccm-baremetal"
)

// annotationRefused is, on the accepted ConfigMap, the hash of the user's
// document if that was refused because it would change too much. Changing it is
// an API change.
const annotationRefused = "ccm-baremetal.io/refused" // the hash of a document that was refused because it would change too much

// Reasons of events on the user's ConfigMap. Changing one is an API change.
const (
	reasonAccepted = "ConfigurationAccepted" // the document is in force
	reasonRefused  = "ConfigurationRefused"  // it is not, and the message says why
)

// After an error a source tries again after a pause that doubles between these.
const (
	retryFirst = time.Second
	retryLast  = 30 * time.Second
)

// judgeWithin is how long it may take to find out what Services hold, before
// the last good document goes on without the user's.
const judgeWithin = 2 * time.Minute

// A ConfigMap is the Source in a cluster. It needs the right to get, list and
// watch both ConfigMaps by name, to create one, and to update the accepted one.
type ConfigMap struct {
	Client    kubernetes.Interface
	Namespace string
	Events    record.EventRecorder
}

var _ Source = (*ConfigMap)(nil)

// Missing names the ConfigMap to create.
func (m *ConfigMap) Missing() string {
	return fmt.Sprintf("no configuration: there is no valid document in ConfigMap %s/%s, key %s", m.Namespace, UserConfigMap, config.ConfigMapKey)
}

// Run follows both ConfigMaps: the user's for what is wanted, the accepted one
// so that it is put back if somebody changes it.
func (m *ConfigMap) Run(ctx context.Context, k *Keeper) {
	kick := make(chan struct{}, 1)
	user, accepted := m.follow(ctx, UserConfigMap, kick), m.follow(ctx, AcceptedConfigMap, kick)
	if !cache.WaitForCacheSync(ctx.Done(), user.HasSynced, accepted.HasSynced) {
		return
	}
	f := &follower{ConfigMap: m, keeper: k, user: user.GetStore()}
	pause := retryFirst
	for {
		retry := (<-chan time.Time)(nil)
		if err := f.pass(ctx); err != nil {
			k.log.Warn("configuration not looked after, will retry", "err", err, "after", pause)
			retry = time.After(pause)
			pause = min(2*pause, retryLast)
		} else {
			pause = retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-retry:
		}
	}
}

// follow watches one ConfigMap and no other.
func (m *ConfigMap) follow(ctx context.Context, name string, kick chan<- struct{}) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(m.Client, 0, informers.WithNamespace(m.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	poke := func() {
		select {
		case kick <- struct{}{}:
		default:
		}
	}
	// The only error is that of an informer that was stopped already.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	})
	factory.Start(ctx.Done())
	return informer
}

// A follower is one run of a ConfigMap.
type follower struct {
	*ConfigMap
	keeper *Keeper
	user   cache.Store // holds the user's ConfigMap, if there is one

	resumed  bool
	accepted *v1.ConfigMap // as the API server said last; nil: there is none
	refused  *string       // the document that was refused last, so that it is told once
	excess   string        // the hash of that document if it would change too much; empty: none
	waiting  bool          // it was said that there is no configuration
}

// pass brings the document in force, and the record of it, to what they
// should be. What is recorded is asked of the API server itself: a watch that
// lags would have us write it twice.
func (f *follower) pass(ctx context.Context) error {
	accepted, err := f.Client.CoreV1().ConfigMaps(f.Namespace).Get(ctx, AcceptedConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		accepted = nil
	case err != nil:
		return fmt.Errorf("get configmap %s: %w", AcceptedConfigMap, err)
	}
	f.accepted = accepted
	if !f.resumed {
		f.resume()
	}
	if obj, ok, _ := f.user.GetByKey(f.Namespace + "/" + UserConfigMap); ok { // reads from memory
		judging, cancel := context.WithTimeout(ctx, judgeWithin)
		err = f.consider(judging, obj.(*v1.ConfigMap))
		cancel()
	} else {
		f.withdrawn()
	}
	f.keeper.settle() // also where it could not be judged: the last good one goes on
	if err != nil {
		return err
	}
	if document := f.keeper.inForce(); document != nil {
		return f.store(ctx, document)
	}
	if !f.waiting {
		f.keeper.log.Warn("waiting for a configuration", "why", f.Missing())
	}
	f.waiting = true
	return nil
}

// resume starts from what was accepted before, without judging it again.
func (f *follower) resume() {
	f.resumed = true
	if f.accepted == nil {
		return
	}
	f.excess = f.accepted.Annotations[annotationRefused]
	document := []byte(f.accepted.Data[config.ConfigMapKey])
	c, err := config.Load(document)
	if err != nil {
		f.keeper.log.Warn("the accepted document cannot be read, only a new one can help", "configmap", AcceptedConfigMap, "err", err)
		return
	}
	f.keeper.resume(c, document)
}

// withdrawn forgets a refusal whose document has been deleted: nobody wants
// anything but what is in force.
func (f *follower) withdrawn() {
	f.refused, f.excess = nil, ""
	f.keeper.fresh()
}

// consider offers the user's document, once if it is refused.
func (f *follower) consider(ctx context.Context, user *v1.ConfigMap) error {
	document, ok := user.Data[config.ConfigMapKey]
	switch {
	case f.refused != nil && *f.refused == document:
		return nil
	case f.refused == nil && f.excess != "" && f.excess == hash(document):
		f.refused = &document
		f.keeper.refused(errors.New("it would change too much, was refused for that before, and has not been edited since"))
		return nil
	}
	before := f.keeper.inForce()
	err := error(&Refusal{Err: fmt.Errorf("there is no key %s", config.ConfigMapKey)})
	if ok {
		err = f.keeper.offer(ctx, []byte(document), f.accept)
	}
	refusal := (*Refusal)(nil)
	switch {
	case err == nil:
		f.refused, f.excess = nil, ""
		if before != nil && string(before) != document {
			f.Events.Event(user, v1.EventTypeNormal, reasonAccepted, "in force from now on")
		}
		return nil
	case errors.As(err, &refusal):
		f.refused, f.excess = &document, refusal.Hash
		f.keeper.refused(refusal)
		f.Events.Event(user, v1.EventTypeWarning, reasonRefused, eventtext.Line(refusal.Error()))
		return nil
	}
	return err
}

// hash returns the hash of a document, empty if it has faults.
func hash(document string) string {
	c, err := config.Load([]byte(document))
	if err != nil {
		return ""
	}
	return c.Hash
}

// accept stores a document that is about to come into force.
func (f *follower) accept(ctx context.Context, document []byte) error {
	f.excess = ""
	return f.store(ctx, document)
}

// store keeps a document for the next start, and for the announcers, and
// whether the user's was refused for changing too much. It writes only if that
// is not what is stored.
func (f *follower) store(ctx context.Context, document []byte) error {
	client := f.Client.CoreV1().ConfigMaps(f.Namespace)
	before := f.accepted
	var err error
	switch {
	case f.accepted == nil:
		f.accepted, err = client.Create(ctx, f.record(&v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: AcceptedConfigMap, Namespace: f.Namespace, Labels: map[string]string{ManagedByLabel: ManagedBy}},
		}, document), metav1.CreateOptions{FieldManager: ManagedBy})
	case f.accepted.Data[config.ConfigMapKey] != string(document) || f.accepted.Annotations[annotationRefused] != f.excess:
		f.accepted, err = client.Update(ctx, f.record(f.accepted.DeepCopy(), document), metav1.UpdateOptions{FieldManager: ManagedBy})
	}
	if errors.Is(err, rehearse.ErrWithheld) {
		f.accepted = before
		return nil // who only observes stores nothing, and goes on as if it had
	}
	if err != nil {
		return fmt.Errorf("store the accepted document in configmap %s: %w", AcceptedConfigMap, err)
	}
	return nil
}

// record writes down, in m, what is to be stored.
func (f *follower) record(m *v1.ConfigMap, document []byte) *v1.ConfigMap {
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	m.Data[config.ConfigMapKey] = string(document)
	delete(m.Annotations, annotationRefused)
	if f.excess != "" {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[annotationRefused] = f.excess
	}
	return m
}
