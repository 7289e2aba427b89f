package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
)

// passwordKey is where a Secret has the password for a router, as Secrets of
// the type kubernetes.io/basic-auth do. Changing it is an API change.
const passwordKey = "password"

// secrets reads the passwords for routers.
type secrets struct {
	api       *source.API
	namespace string
}

// password returns the password in a Secret. No error has it in its text. That
// there is none is a bgp.NoPasswordError; all others leave that open.
func (s secrets) password(ctx context.Context, name string) (string, error) {
	secret, err := s.api.Secret(ctx, s.namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return "", bgp.NoPasswordError{Why: fmt.Sprintf("there is no Secret %s/%s", s.namespace, name)}
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("the announcer has no right to read Secret %s/%s: name it in the Role announcer-bgp", s.namespace, name)
	case err != nil:
		return "", fmt.Errorf("get secret %s/%s: %w", s.namespace, name, err)
	case len(secret.Data[passwordKey]) == 0:
		return "", bgp.NoPasswordError{Why: fmt.Sprintf("the Secret %s/%s has no %s", s.namespace, name, passwordKey)}
	}
	return string(secret.Data[passwordKey]), nil
}
