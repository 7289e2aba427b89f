package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
)

// deployment returns how the controllers are to run.
func (g gatherer) deployment(ctx context.Context) diagnose.Known[diagnose.Deployment] {
	d, err := g.client.AppsV1().Deployments(g.namespace).Get(ctx, "ccm-baremetal", metav1.GetOptions{})
	if err != nil {
		return known(diagnose.Deployment{}, fmt.Errorf("get deployment %s/ccm-baremetal: %w", g.namespace, err))
	}
	return known(diagnose.Deployment{ObserveOnly: observes(d.Spec.Template)}, nil)
}

// observes tells whether the Pods of a template run with --observe-only.
func observes(template v1.PodTemplateSpec) bool {
	value, given := flagOf(template, "observe-only")
	on, err := strconv.ParseBool(value)
	return given && (value == "" || err == nil && on)
}

// flagOf returns the value of a flag that the Pods of a template run with, empty
// if it has none, and whether it is given at all. The last one counts.
func flagOf(template v1.PodTemplateSpec, name string) (value string, given bool) {
	for _, c := range template.Spec.Containers {
		args := slices.Concat(c.Command, c.Args)
		for i, arg := range args {
			flag, after, joined := strings.Cut(arg, "=")
			switch {
			case flag != "--"+name:
			case joined:
				value, given = after, true
			case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
				value, given = args[i+1], true
			default:
				value, given = "", true
			}
		}
	}
	return value, given
}
