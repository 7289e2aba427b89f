package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// service is a Service of ours. The names in it are those of the JSON output;
// changing one is an API change. Lists are never null.
type service struct {
	Service   string    `json:"service"`
	Addresses []string  `json:"addresses"`
	Allocated condition `json:"allocated"`
	Announced condition `json:"announced"`
}

// condition is a condition of a Service; its status is empty if it has none.
type condition struct {
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// well tells whether there is nothing to be said against the Service.
func (s service) well() bool {
	return s.Allocated.Status == string(metav1.ConditionTrue) && s.Announced.Status == string(metav1.ConditionTrue)
}

// serviceList is the output of services.
type serviceList struct {
	Services []service `json:"services"`
}

// readServices returns the Services of ours: those with a condition of ours,
// and those that the document in force makes ours.
func readServices(ctx context.Context, client kubernetes.Interface, namespace string, known inspect.Allocations) ([]service, error) {
	all, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	ours := map[string]bool{}
	for _, h := range known.Holders {
		ours[h.Service] = true
	}
	for _, w := range known.Waiting {
		ours[w.Service] = true
	}
	out := []service{}
	for _, svc := range all.Items {
		s := service{Service: svc.Namespace + "/" + svc.Name, Addresses: addressesOf(svc)}
		s.Allocated, s.Announced = conditionOf(svc, config.ConditionAllocated), conditionOf(svc, config.ConditionAnnounced)
		if ours[s.Service] || s.Allocated.Status != "" {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b service) int { return cmp.Compare(a.Service, b.Service) })
	return out, nil
}

func addressesOf(svc v1.Service) []string {
	out := []string{}
	for _, i := range svc.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			out = append(out, i.IP)
		}
	}
	return out
}

func conditionOf(svc v1.Service, kind string) condition {
	for _, c := range svc.Status.Conditions {
		if c.Type == kind {
			return condition{string(c.Status), c.Reason, c.Message, c.LastTransitionTime.UTC()}
		}
	}
	return condition{}
}

// Print shows a line for each Service: where it is announced, or what is wrong.
func (l serviceList) Print(w io.Writer) error {
	if len(l.Services) == 0 {
		_, err := fmt.Fprintln(w, "No Service of ours.")
		return err
	}
	inspect.Table(w, "SERVICE\tADDRESSES\tALLOCATED\tANNOUNCED\tWHY", l.Services, func(s service) string {
		return strings.Join([]string{s.Service, inspect.OrNone(strings.Join(s.Addresses, ",")), s.Allocated.word(), s.Announced.word(), s.why()}, "\t")
	})
	return nil
}

// word is the reason, which says more than the status.
func (c condition) word() string {
	return cmp.Or(c.Reason, "-")
}

// why is the message that is most worth reading.
func (s service) why() string {
	switch {
	case s.Allocated.Status == "":
		return "no controller has looked at it"
	case s.Allocated.Status != string(metav1.ConditionTrue):
		return s.Allocated.Message
	case s.Announced.Status == "":
		return "no announcer has said anything yet"
	}
	return s.Announced.Message
}
