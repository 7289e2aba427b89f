package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
)

// LabelController is the name of a Labeller among the framework's controllers.
// Changing it is an API change.
const LabelController = "node-label-controller"

// AnnotationLabels on a Node lists the labels that are there because the
// inventory or a host says so, so that they can be removed again. Changing it
// is an API change.
const AnnotationLabels = "ccm-baremetal.io/node-labels" // the labels that are there because the inventory or a host says so

// fieldManager is whom the API server takes for the writer of labels.
const fieldManager = "ccm-baremetal"

// After a failed write, it is tried again after a pause that doubles between
// these.
const (
	labelRetryFirst = 100 * time.Millisecond
	labelRetryLast  = 5 * time.Minute
)

// A Labeller keeps the labels of initialized Nodes in step with what is known
// about their machines: the framework sets them once and never again.
type Labeller struct {
	instances *Instances
	queue     workqueue.TypedRateLimitingInterface[string] // names of Nodes
	synced    cache.InformerSynced
}

// NewLabeller returns a Labeller. Watch and Run set it to work, in this order.
func NewLabeller(i *Instances) *Labeller {
	return &Labeller{instances: i, queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](labelRetryFirst, labelRetryLast),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "node_labels"})}
}

// Name returns the name under which the framework knows the controller.
func (l *Labeller) Name() string { return LabelController }

// Watch subscribes to Nodes, and to what is known about machines. It must be
// called before the informer of Nodes starts.
func (l *Labeller) Watch() error {
	look := func(obj any) { l.queue.Add(obj.(*v1.Node).Name) }
	registration, err := l.instances.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, obj any) { look(obj) },
	})
	if err != nil {
		return fmt.Errorf("subscribe to Nodes: %w", err)
	}
	l.synced = registration.HasSynced
	l.instances.OnChange(l.lookAround)
	return nil
}

// lookAround queues all Nodes.
func (l *Labeller) lookAround() {
	nodes, _ := l.instances.nodes.List(labels.Everything()) // reads from memory
	for _, node := range nodes {
		l.queue.Add(node.Name)
	}
}

// Run works until ctx ends.
func (l *Labeller) Run(ctx context.Context) {
	defer l.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), l.synced) {
		return
	}
	go func() {
		<-ctx.Done()
		l.queue.ShutDown()
	}()
	for {
		name, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		l.look(ctx, name)
		l.queue.Done(name)
	}
}

// look brings one Node into step.
func (l *Labeller) look(ctx context.Context, name string) {
	node, err := l.instances.nodes.Get(name)
	if err != nil {
		l.queue.Forget(name)
		return
	}
	change, wanted := l.instances.labelChange(node)
	if wanted {
		err = l.write(ctx, node, change)
	}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		l.queue.Forget(name)
	case ctx.Err() == nil:
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			l.instances.tell(node, v1.EventTypeWarning, reasonLabelsRefused, err.Error())
		}
		l.instances.log.Debug("labels of a node not written, will retry", "node", name, "err", err)
		l.queue.AddRateLimited(name)
	}
}

// labelChange tells what to change about the labels of a Node, and whether
// there is anything. What is not known for certain changes nothing.
func (i *Instances) labelChange(node *v1.Node) (decide.LabelChange, bool) {
	c, err := i.inForce()
	if err != nil || Uninitialized(node) {
		return decide.LabelChange{}, false
	}
	m, err := i.machineOf(c, node)
	if err != nil || m.foreign || m.trouble != nil {
		return decide.LabelChange{}, false
	}
	change := decide.Labels(node.Labels, ownedLabels(node), m.describe(c, node))
	if m.hosted(c, node) && m.host == nil {
		// That there is no such host says nothing: hosts are moved to another
		// cluster while their machines run.
		change = change.KeepAll(ownedLabels(node))
	}
	news := len(change.Set) > 0 || len(change.Remove) > 0 || !slices.Equal(change.Owned, ownedLabels(node))
	return change, news
}

// ownedLabels returns the labels of a Node that we set before, sorted.
func ownedLabels(node *v1.Node) []string {
	text := node.Annotations[AnnotationLabels]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// write patches labels and annotation at once. The UID makes sure that the Node
// is still the one that was looked at, and not a namesake.
func (l *Labeller) write(ctx context.Context, node *v1.Node, c decide.LabelChange) error {
	set := map[string]any{}
	for key, value := range c.Set {
		set[key] = value
	}
	for _, key := range c.Remove {
		set[key] = nil
	}
	metadata := map[string]any{"uid": node.UID, "labels": set}
	if owned := strings.Join(c.Owned, ","); owned != node.Annotations[AnnotationLabels] {
		metadata["annotations"] = map[string]any{AnnotationLabels: orNull(owned)}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = l.instances.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("patch the labels of node %s: %w", node.Name, err)
	}
	l.instances.counts.labelled()
	l.instances.log.Info("labels of a node written", "node", node.Name, "set", c.Set, "removed", c.Remove)
	return nil
}

// orNull is null, which removes a key, for an empty text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
