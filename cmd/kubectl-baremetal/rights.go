package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
)

// denied asks the API server which rights of our accounts are missing.
func (g gatherer) denied(ctx context.Context) diagnose.Known[[]diagnose.Right] {
	var denied []diagnose.Right
	i, err := g.installation(ctx)
	if err != nil {
		return known(denied, err)
	}
	for _, r := range diagnose.Rights(i) {
		allowed, err := g.may(ctx, r)
		if err != nil {
			return known(denied, fmt.Errorf("ask what %s may do: %w", r.Account, err))
		}
		if !allowed {
			denied = append(denied, r)
		}
	}
	return known(denied, nil)
}

// installation returns what the document in force makes the announcers need.
func (g gatherer) installation(ctx context.Context) (diagnose.Installation, error) {
	out := diagnose.Installation{Namespace: g.namespace}
	c, err := g.accepted(ctx)
	if err != nil || c == nil {
		return out, err
	}
	if c.BGP.Backend == config.FRRK8s && len(c.BGP.Peers) > 0 {
		if out.FRRK8s, err = g.frrK8s(ctx); err != nil {
			return out, err
		}
	}
	out.Sidecar = c.BGP.Backend == config.FRR
	for _, p := range c.BGP.Peers {
		if p.PasswordSecret != "" && !slices.Contains(out.Passwords, p.PasswordSecret) {
			out.Passwords = append(out.Passwords, p.PasswordSecret)
		}
	}
	return out, nil
}

// frrK8s returns the namespace in which the announcers look for frr-k8s.
func (g gatherer) frrK8s(ctx context.Context) (string, error) {
	d, err := g.client.AppsV1().DaemonSets(g.namespace).Get(ctx, "announcer", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get daemonset %s/announcer: %w", g.namespace, err)
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		for i, arg := range c.Args {
			switch namespace, ok := strings.CutPrefix(arg, "--frr-k8s-namespace="); {
			case ok:
				return namespace, nil
			case arg == "--frr-k8s-namespace" && i+1 < len(c.Args):
				return c.Args[i+1], nil
			}
		}
	}
	return "frr-k8s-system", nil
}

func (g gatherer) may(ctx context.Context, r diagnose.Right) (bool, error) {
	attributes := &authorization.ResourceAttributes{Verb: r.Verb, Group: r.Group, Name: r.Name, Namespace: r.Namespace}
	attributes.Resource, attributes.Subresource, _ = strings.Cut(r.Resource, "/")
	review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + g.namespace + ":" + r.Account,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + g.namespace, "system:authenticated"},
		ResourceAttributes: attributes,
	}}
	answer, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
