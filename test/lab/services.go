package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// LoadBalancer returns a Service of that type for the pods of app: port 80 is
// their HTTP port, 8081 and 8082 are the TCP and UDP echo. The caller may edit
// it before CreateService.
func LoadBalancer(namespace, name, app string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{AppLabel: app},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(PodHTTPPort)},
				{Name: "tcp", Port: PodTCPPort},
				{Name: "udp", Port: PodUDPPort, Protocol: corev1.ProtocolUDP},
			},
		},
	}
}

// CreateService creates a Service, and its namespace when there is none.
func (l *Lab) CreateService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	if err := l.ensureNamespace(ctx, s.Namespace); err != nil {
		return nil, err
	}
	made, err := l.client.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create service %s/%s: %w", s.Namespace, s.Name, err)
	}
	return made, nil
}

// SetIngress writes addresses into the status of a Service, as a cloud
// provider does. Without any it clears them.
func (l *Lab) SetIngress(ctx context.Context, s *corev1.Service, addrs ...netip.Addr) error {
	ingress := []corev1.LoadBalancerIngress{}
	for _, a := range addrs {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}})
	if err != nil {
		return err
	}
	_, err = l.client.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set the addresses of service %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// WaitIngress waits until the status of a Service holds an address, and
// returns all that it holds, in their order.
func (l *Lab) WaitIngress(ctx context.Context, s *corev1.Service) ([]netip.Addr, error) {
	var addrs []netip.Addr
	err := poll(ctx, fmt.Sprintf("an address of service %s/%s", s.Namespace, s.Name), func() (bool, error) {
		now, err := l.client.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		addrs, err = Ingress(now)
		return len(addrs) > 0, err
	})
	return addrs, err
}

// Ingress returns the addresses in the status of a Service, in their order.
func Ingress(s *corev1.Service) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, i := range s.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(i.IP)
		if err != nil {
			return nil, fmt.Errorf("status of service %s/%s: %w", s.Namespace, s.Name, err)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}
