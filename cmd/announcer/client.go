package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// userAgent tells our requests apart in audit logs. Changing it is an API change.
const userAgent = "announcer"

// attentive are settings of client-go for which it has no other place. A
// connection to the API server at rest is pinged after five seconds, and given
// up when that is not answered in another five: a node that is cut from the API
// server alone has to notice it long before it counts as stale.
var attentive = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
	"HTTP2_PING_TIMEOUT_SECONDS":      "5",
}

// newClient returns a client of the API server. It does not connect. One that
// only observes withholds every write.
func newClient(kubeconfig string, observeOnly bool, log *slog.Logger) (*source.API, error) {
	for name, value := range attentive {
		if _, given := os.LookupEnv(name); given {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig) // as a pod if that is empty
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	c = modest(c)
	if observeOnly {
		c.Wrap(rehearse.New(log).Wrap)
	}
	return source.NewAPI(c)
}

// modest makes requests few and small: thousands of these clients may run.
func modest(c *rest.Config) *rest.Config {
	c.UserAgent = userAgent
	c.QPS, c.Burst = 5, 20
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}

// eventSink writes events for client-go's recorder.
type eventSink struct{ api *source.API }

var _ record.EventSink = eventSink{}

// Create writes a new event.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.api.CreateEvent(context.Background(), e)
}

// Update writes an event anew. The recorder never asks for it, and there is
// no right to replace one.
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) { return s.Create(e) }

// Patch counts an event that has been written before.
func (s eventSink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.api.PatchEvent(context.Background(), e, patch)
}

// fieldManager owns the condition Announced of Services. Changing it is an API
// change: the old owner would stay.
const fieldManager = "ccm-baremetal-announcer"

// conditionSink reads and writes the condition Announced of Services.
type conditionSink struct {
	api   *source.API
	world *source.World
}

func (s conditionSink) observed(service string) status.Condition {
	c := s.world.Announced(service)
	return status.Condition{Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}
}

// write answers that there is no such Service also of one that has stopped being
// a LoadBalancer since the last pass: its condition is nobody's here any more.
func (s conditionSink) write(ctx context.Context, service string, was, want status.Condition) error {
	uid := s.world.UID(service)
	if uid == "" {
		return apierrors.NewNotFound(corev1.Resource("services"), service)
	}
	patch, err := status.ConditionPatch(uid, was, want, time.Now())
	if err != nil {
		return fmt.Errorf("condition of service %s: %w", service, err)
	}
	namespace, name, _ := strings.Cut(service, "/")
	if err := s.api.PatchServiceStatus(ctx, namespace, name, fieldManager, patch); err != nil {
		return fmt.Errorf("patch the condition Announced of service %s: %w", service, err)
	}
	return nil
}

// bridge makes client-go log to our logger. It reports each of its attempts,
// we report what changes: so everything of it is a debug message.
func bridge(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(demoted{log.Handler()}))
}

// demoted is a handler that makes everything a debug message.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	if !d.Enabled(ctx, r.Level) { // klog does not ask before it logs an error
		return nil
	}
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
