package service

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// listening tells whether events count already. Before that they are dropped:
// restore looks at everything anyway.
func (c *Controller) listening() bool {
	select {
	case <-c.restored:
		return true
	default:
		return false
	}
}

func (c *Controller) onService() cache.ResourceEventHandler {
	look := func(obj any) {
		if svc, ok := obj.(*v1.Service); ok && c.listening() && c.concerns(svc) {
			c.queue.Add(keyOf(svc))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if svc, ok := obj.(*v1.Service); ok && c.listening() {
				c.births.wants(svc, born(svc, time.Now()))
				c.tell(svc, c.balancer.externalNews(nil, svc))
			}
			look(obj)
		},
		UpdateFunc: func(was, is any) {
			if before, after := was.(*v1.Service), is.(*v1.Service); c.listening() {
				c.births.wants(after, time.Now()) // of another type before, or without its address
				c.tell(after, c.balancer.externalNews(before, after))
			}
			look(is)
		},
		DeleteFunc: func(obj any) {
			// The last state may be unknown, then obj is a tombstone.
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil && c.listening() {
				c.queue.Add(ipam.Key(key))
			}
		},
	}
}

// tell emits events about a Service.
func (c *Controller) tell(svc *v1.Service, events []event) {
	for _, e := range events {
		c.events.Event(svc, e.kind, e.reason, e.message)
	}
}

func (c *Controller) onNamespace() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.lookInto(obj.(*v1.Namespace).Name) },
		UpdateFunc: func(was, is any) {
			if !maps.Equal(was.(*v1.Namespace).Labels, is.(*v1.Namespace).Labels) {
				c.lookInto(is.(*v1.Namespace).Name)
			}
		},
	}
}

// lookInto queues the Services of a namespace, oldest first.
func (c *Controller) lookInto(namespace string) {
	if !c.listening() {
		return
	}
	all, _ := c.services.Services(namespace).List(labels.Everything()) // reads from memory
	slices.SortFunc(all, byAge)
	for _, svc := range all {
		if c.concerns(svc) {
			c.queue.Add(keyOf(svc))
		}
	}
}

func (c *Controller) onNode() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.lookAround() },
		UpdateFunc: func(was, is any) {
			if !slices.Equal(nodeAddresses(was.(*v1.Node)), nodeAddresses(is.(*v1.Node))) {
				c.lookAround()
			}
		},
		DeleteFunc: func(any) { c.lookAround() },
	}
}

func (c *Controller) onWorld() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.lookAround() },
		UpdateFunc: func(any, any) { c.lookAround() },
		DeleteFunc: func(any) { c.lookAround() },
	}
}

// lookAround queues a look at everything.
func (c *Controller) lookAround() {
	if c.listening() {
		c.queue.Add(world)
	}
}
