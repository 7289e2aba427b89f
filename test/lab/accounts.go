package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
)

// APIPort is where the API server listens on the control plane host.
const APIPort = 6443

// tokenLife is how long the token in a kubeconfig of a service account works.
const tokenLife = 24 * 60 * 60

// An account is a user with a token. The components of Kubernetes have the
// users that the bootstrap roles are bound to.
type account struct {
	user, group string
	file        string // in the pki directory; .kubeconfig and .token are added
}

const adminUser = "lab-admin"

func (l *Lab) accounts() []account {
	all := []account{
		{adminUser, "system:masters", "admin"},
		// All controllers in one account with all rights: one account for each
		// would cost seconds of every start.
		{"system:kube-controller-manager", "system:masters", "controller-manager"},
		{"system:kube-proxy", "", "proxy"},
	}
	for _, node := range l.Nodes() {
		all = append(all, account{"system:node:" + node.Name, "system:nodes", node.Name})
	}
	return all
}

// issueAccounts makes the certificates, and a token with a kubeconfig for each
// account.
func (l *Lab) issueAccounts(context.Context) error {
	if err := l.issueCertificates(); err != nil {
		return err
	}
	var tokens strings.Builder
	for _, a := range l.accounts() {
		token := newToken()
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", token, a.user, a.user, a.group)
		if err := writeFile(l.pki(a.file+".token"), []byte(token)); err != nil {
			return err
		}
		if err := l.writeKubeconfig(l.pki(a.file+".kubeconfig"), l.server(), a.user, token); err != nil {
			return err
		}
	}
	if err := writeFile(l.pki(tokenFile), []byte(tokens.String())); err != nil {
		return err
	}
	return l.connect()
}

// connect makes the administrator's client.
func (l *Lab) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", l.AdminKubeconfig())
	if err != nil {
		return err
	}
	config.Dial = netns.Dialer(l.namespace(ControlPlane))
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // see environment
	config.QPS = -1                                                          // no limit
	config.UserAgent = adminUser
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	l.rest, l.client = config, client
	return nil
}

// Client returns a client with all rights and no limit of requests. Its
// connections begin on the control plane host, so no cut affects it.
func (l *Lab) Client() *kubernetes.Clientset { return l.client }

// RESTConfig returns a copy of the configuration of Client, for other kinds of
// clients.
func (l *Lab) RESTConfig() *rest.Config { return rest.CopyConfig(l.rest) }

// AdminKubeconfig returns the path of a kubeconfig with all rights. It works
// for programs on every host of the lab, and on no other.
func (l *Lab) AdminKubeconfig() string { return l.pki("admin.kubeconfig") }

// Kubeconfig writes a kubeconfig with which a program has exactly the rights of
// a service account, which must exist, and returns its path.
func (l *Lab) Kubeconfig(ctx context.Context, namespace, serviceAccount string) (string, error) {
	return l.kubeconfigFor(ctx, l.server(), namespace, serviceAccount, nil)
}

// KubeconfigOn is Kubeconfig for a program on a node: the API server knows the
// node from the token, as it does from that of a pod. The token ends with the
// Node object.
func (l *Lab) KubeconfigOn(ctx context.Context, node, namespace, serviceAccount string) (string, error) {
	n, err := l.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token for node %s: %w", node, err)
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID}
	return l.kubeconfigFor(ctx, l.server(), namespace, serviceAccount, bound)
}

func (l *Lab) kubeconfigFor(ctx context.Context, server, namespace, serviceAccount string, bound *authenticationv1.BoundObjectReference) (string, error) {
	seconds := int64(tokenLife)
	request, err := l.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: bound}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token for service account %s/%s: %w", namespace, serviceAccount, err)
	}
	file, err := os.CreateTemp(l.pki(""), namespace+"."+serviceAccount+".*.kubeconfig")
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return file.Name(), l.writeKubeconfig(file.Name(), server, serviceAccount, request.Status.Token)
}

func (l *Lab) writeKubeconfig(path, server, user, token string) error {
	return clientcmd.WriteToFile(*l.kubeconfig(server, user, token), path)
}

func (l *Lab) kubeconfig(server, user, token string) *api.Config {
	config := api.NewConfig()
	config.Clusters["lab"] = &api.Cluster{Server: server, CertificateAuthority: l.pki(caCert)}
	config.AuthInfos[user] = &api.AuthInfo{Token: token}
	config.Contexts["lab"] = &api.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	return config
}

// Kubectl runs kubectl as administrator and returns what it printed.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.Run(ctx, ControlPlane, append([]string{l.state.Binaries["kubectl"]}, args...)...)
}

// server returns the URL of the API server, as every host reaches it.
func (l *Lab) server() string { return l.url(APIPort) }

func (l *Lab) url(port uint16) string {
	return "https://" + netip.AddrPortFrom(l.controlPlane().IPv4, port).String()
}
