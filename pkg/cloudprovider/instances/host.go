package instances

import (
	"fmt"
	"net/netip"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
)

// What is read of a management cluster.
var (
	hostResource     = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
	hardwareResource = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "hardwaredata"}
)

// Annotations of a BareMetalHost that mean that it is left alone.
var freezing = []struct{ annotation, state string }{
	{"baremetalhost.metal3.io/paused", "paused"},
	{"baremetalhost.metal3.io/detached", "detached"},
	{"clusterctl.cluster.x-k8s.io/block-move", "being moved"},
}

// bareMetalHost is what we read of a metal3.io/v1alpha1 BareMetalHost.
type bareMetalHost struct {
	Spec struct {
		ConsumerRef *struct {
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"consumerRef"`
	} `json:"spec"`
	Status struct {
		OperationalStatus string `json:"operationalStatus"`
		PoweredOn         bool   `json:"poweredOn"`
		Provisioning      struct {
			State string `json:"state"`
			ID    string `json:"ID"`
		} `json:"provisioning"`
		Hardware *hardware `json:"hardware"`
	} `json:"status"`
}

// hardwareData is what we read of a metal3.io/v1alpha1 HardwareData.
type hardwareData struct {
	Spec struct {
		Hardware *hardware `json:"hardware"`
	} `json:"spec"`
}

type hardware struct {
	SystemVendor struct {
		ProductName string `json:"productName"`
	} `json:"systemVendor"`
	NICs []struct {
		IP string `json:"ip"`
	} `json:"nics"`
}

// HostFrom reads a BareMetalHost.
func HostFrom(object *unstructured.Unstructured) (decide.Host, error) {
	var read bareMetalHost
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &read); err != nil {
		return decide.Host{}, fmt.Errorf("read BareMetalHost %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	host := decide.Host{
		Namespace:   object.GetNamespace(),
		Name:        object.GetName(),
		UID:         string(object.GetUID()),
		Labels:      object.GetLabels(),
		State:       read.Status.Provisioning.State,
		Registered:  read.Status.Provisioning.ID != "",
		PoweredOn:   read.Status.PoweredOn,
		Operational: read.Status.OperationalStatus,
		Frozen:      frozen(object.GetAnnotations(), read.Status.OperationalStatus),
	}
	if ref := read.Spec.ConsumerRef; ref != nil {
		host.Consumer = decide.Consumer{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	}
	read.Status.Hardware.addTo(&host)
	return host, nil
}

func frozen(annotations map[string]string, operational string) string {
	for _, f := range freezing {
		if _, ok := annotations[f.annotation]; ok {
			return f.state
		}
	}
	if operational == "detached" {
		return "detached"
	}
	return ""
}

// addTo adds what inspection has found; h may be nil.
func (h *hardware) addTo(host *decide.Host) {
	if h == nil {
		return
	}
	host.Product = h.SystemVendor.ProductName
	host.Addresses = nil
	for _, nic := range h.NICs {
		if a, err := netip.ParseAddr(nic.IP); err == nil {
			host.Addresses = append(host.Addresses, a.Unmap())
		}
	}
}

// A kept is an object as it is kept in memory: the informer wants to know its
// name.
type kept struct {
	metav1.ObjectMeta
	host     decide.Host // of a BareMetalHost
	hardware *hardware   // of a HardwareData
}

// same tells whether nothing that counts has changed.
func (k *kept) same(other *kept) bool {
	return reflect.DeepEqual(k.host, other.host) && reflect.DeepEqual(k.hardware, other.hardware)
}

// keepHost reduces a BareMetalHost to what counts.
func keepHost(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone, or reduced already
	}
	host, err := HostFrom(u)
	return &kept{ObjectMeta: identity(u), host: host}, err
}

// keepHardware reduces a HardwareData to what counts.
func keepHardware(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	var read hardwareData
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &read); err != nil {
		return nil, fmt.Errorf("read HardwareData %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return &kept{ObjectMeta: identity(u), hardware: read.Spec.Hardware}, nil
}

func identity(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}
}
