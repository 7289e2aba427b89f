package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apiproxy"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
)

// An APIProxy is a proxy on the control plane host, with its own port, in front
// of the API server. Programs that use its kubeconfigs meet its faults; all
// others do not.
type APIProxy struct {
	*apiproxy.Proxy
	lab  *Lab
	port uint16
}

// APIProxy starts a proxy that has no faults yet. It ends with its Close, or
// when the lab is down.
func (l *Lab) APIProxy() (*APIProxy, error) {
	cert, err := tls.LoadX509KeyPair(l.pki(serverCert), l.pki(serverKey))
	if err != nil {
		return nil, fmt.Errorf("certificate of the proxy: %w", err)
	}
	anonymous := rest.AnonymousClientConfig(l.rest)
	anonymous.Dial = l.rest.Dial
	transport, err := rest.TransportFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("transport of the proxy: %w", err)
	}
	server, err := url.Parse(l.server())
	if err != nil {
		return nil, err
	}
	listener, err := netns.Listen(l.namespace(ControlPlane), "tcp", netip.AddrPortFrom(l.controlPlane().IPv4, 0).String())
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	proxy := &APIProxy{
		Proxy: apiproxy.Start(apiproxy.Config{Listener: listener, Cert: cert, Server: server, Transport: transport}),
		lab:   l,
		port:  listener.Addr().(*net.TCPAddr).AddrPort().Port(),
	}
	l.onDown(proxy)
	return proxy, nil
}

// Kubeconfig is Lab.Kubeconfig by way of the proxy.
func (p *APIProxy) Kubeconfig(ctx context.Context, namespace, serviceAccount string) (string, error) {
	return p.lab.kubeconfigFor(ctx, p.lab.url(p.port), namespace, serviceAccount, nil)
}
