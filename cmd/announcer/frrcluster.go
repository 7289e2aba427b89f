package main

import (
	"context"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrcluster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
)

// clusterAPI tells the backend frr-k8s what the API server's errors mean.
type clusterAPI struct{ raw source.Raw }

func (c clusterAPI) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	text, err := c.raw.Get(ctx, path, query)
	return text, meaning(err)
}

func (c clusterAPI) Follow(ctx context.Context, s frrcluster.Selection, texts frrcluster.Texts, tell func(error)) {
	c.raw.Follow(ctx, source.Selection{
		Group: frrk8s.Group, Version: frrk8s.Version, Resource: s.Resource, Namespace: s.Namespace, Fields: s.Fields, Labels: s.Labels,
	}, texts, func(err error) { tell(meaning(err)) })
}

func (c clusterAPI) Apply(ctx context.Context, path, manager string, object []byte) ([]byte, error) {
	text, err := c.raw.Apply(ctx, path, manager, object)
	return text, meaning(err)
}

func (c clusterAPI) Delete(ctx context.Context, path string) error {
	return meaning(c.raw.Delete(ctx, path))
}

func meaning(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %v", frrcluster.ErrAbsent, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %v", frrcluster.ErrForbidden, err)
	}
	return err
}
