package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startTimeout bounds the wait for one component. They need seconds; a machine
// that is busy with other things needs more.
const startTimeout = 3 * time.Minute

const etcdURL = "http://127.0.0.1:2379"

// auditPolicy records every request once, when it is answered; of watches also
// their beginning.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// startAPI starts etcd and the API server for the first time.
func (l *Lab) startAPI(ctx context.Context) error {
	if err := writeFile(filepath.Join(l.dir, "audit-policy.yaml"), []byte(auditPolicy)); err != nil {
		return err
	}
	if err := l.StartEtcd(ctx); err != nil {
		return err
	}
	return l.StartAPI(ctx)
}

// StartEtcd starts etcd, with the data it had before.
func (l *Lab) StartEtcd(context.Context) error {
	_, err := l.startOwn(ControlPlane, "etcd", l.state.Binaries["etcd"],
		"--data-dir", filepath.Join(l.dir, "etcd"),
		"--unsafe-no-fsync",
		"--listen-client-urls", etcdURL,
		"--advertise-client-urls", etcdURL,
		"--listen-peer-urls", "http://127.0.0.1:2380",
		"--log-level", "warn")
	return err
}

// StopEtcd kills etcd. The API server stays, and cannot work.
func (l *Lab) StopEtcd() error { return l.killOwn(ControlPlane, "etcd") }

// StartAPI starts the API server and returns when it is ready, for which it
// needs etcd.
func (l *Lab) StartAPI(ctx context.Context) error {
	return l.runAPI(ctx, apiServer{name: "kube-apiserver", port: APIPort, prefix: "/registry", audit: l.auditLog(), client: l.client})
}

// An apiServer is one of those on the control plane host.
type apiServer struct {
	name   string
	port   uint16
	prefix string // of its data in etcd
	audit  string // the file of its audit log
	client *kubernetes.Clientset
}

// runAPI starts an API server and returns when it is ready.
func (l *Lab) runAPI(ctx context.Context, a apiServer) error {
	p, err := l.startOwn(ControlPlane, a.name, l.state.Binaries["kube-apiserver"],
		"--etcd-servers", etcdURL,
		"--etcd-prefix", a.prefix,
		"--bind-address", "0.0.0.0",
		"--advertise-address", l.controlPlane().IPv4.String(),
		"--secure-port", fmt.Sprint(a.port),
		"--tls-cert-file", l.pki(serverCert),
		"--tls-private-key-file", l.pki(serverKey),
		"--token-auth-file", l.pki(tokenFile),
		"--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", l.pki(accountKey),
		"--service-account-signing-key-file", l.pki(accountKey),
		"--service-cluster-ip-range", servicesV4+","+servicesV6,
		"--allow-privileged",
		"--audit-policy-file", filepath.Join(l.dir, "audit-policy.yaml"),
		"--audit-log-path", a.audit,
		"--audit-log-maxsize", "100000", // megabytes: never start another file
		"--cert-dir", l.pki(""))
	if err != nil {
		return err
	}
	return l.waitFor(ctx, p, "/readyz of "+a.name, func(ctx context.Context) bool {
		return a.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
	})
}

// StopAPI kills the API server. Its clients see their connections break, and
// new ones refused. etcd and with it all data stay.
func (l *Lab) StopAPI() error { return l.killOwn(ControlPlane, "kube-apiserver") }

func (l *Lab) startControllers(ctx context.Context) error {
	controllers := "*,-node-lifecycle-controller,-node-ipam-controller"
	if l.state.NodeLifecycle {
		controllers = "*,-node-ipam-controller"
	}
	p, err := l.startOwn(ControlPlane, "kube-controller-manager", l.state.Binaries["kube-controller-manager"],
		"--kubeconfig", l.pki("controller-manager.kubeconfig"),
		"--controllers", controllers,
		"--leader-elect=false",
		"--service-account-private-key-file", l.pki(accountKey),
		"--root-ca-file", l.pki(caCert),
		"--cluster-cidr", podsV4+","+podsV6,
		"--node-monitor-period", "1s",
		"--node-monitor-grace-period", NodeGracePeriod.String(),
		"--cert-dir", l.pki(""))
	if err != nil {
		return err
	}
	return l.waitFor(ctx, p, "the controllers' first work", func(ctx context.Context) bool {
		_, err := l.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// startProxies starts all before it waits for any.
func (l *Lab) startProxies(ctx context.Context) error {
	for _, node := range l.Nodes() {
		if _, err := l.startOwn(node.Name, "kube-proxy", l.state.Binaries["kube-proxy"],
			"--kubeconfig", l.pki("proxy.kubeconfig"),
			"--hostname-override", node.Name,
			"--proxy-mode", "nftables",
			"--cluster-cidr", podsV4+","+podsV6,
			// These would be written to files that only the real host has.
			"--conntrack-max-per-core", "0",
			"--conntrack-tcp-timeout-established", "0",
			"--conntrack-tcp-timeout-close-wait", "0"); err != nil {
			return err
		}
	}
	for _, node := range l.Nodes() {
		p, _ := l.Process(node.Name, "kube-proxy")
		if err := l.waitFor(ctx, p, "health of kube-proxy on "+node.Name, func(ctx context.Context) bool {
			_, err := l.Get(ctx, node.Name, "http://127.0.0.1:10256/healthz")
			return err == nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits until ready says so, and gives up when the process has ended.
func (l *Lab) waitFor(ctx context.Context, p *Process, what string, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := poll(ctx, what, func() (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("%s has ended", p.Name)
		}
		return ready(ctx), nil
	})
	if err != nil {
		return fmt.Errorf("%w; the end of its log:\n%s", err, tail(p.Log(), 15))
	}
	return nil
}
