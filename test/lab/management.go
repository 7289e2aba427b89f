package lab

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// ManagementPort is where the API server of a management cluster listens on
// the control plane host.
const ManagementPort = 6444

const managementProcess = "management-apiserver"

// A Management is a second cluster: an API server with data of its own, on the
// control plane host, as Cluster API has one beside those that it makes. It has
// no controllers and no nodes. The accounts of the lab's components are the
// same in both clusters, service accounts are not.
type Management struct {
	lab    *Lab
	rest   *rest.Config
	client *kubernetes.Clientset
}

// StartManagement starts a management cluster and returns when it is ready.
// There is one in a lab; started again it has the data it had. It ends with
// Stop, or when the lab is down.
func (l *Lab) StartManagement(ctx context.Context) (*Management, error) {
	m := &Management{lab: l, rest: l.RESTConfig()}
	m.rest.Host = l.url(ManagementPort)
	var err error
	if m.client, err = kubernetes.NewForConfig(m.rest); err != nil {
		return nil, err
	}
	return m, m.Start(ctx)
}

// Start starts the API server again after Stop.
func (m *Management) Start(ctx context.Context) error {
	return m.lab.runAPI(ctx, apiServer{
		name: managementProcess, port: ManagementPort, prefix: "/management",
		audit: filepath.Join(m.lab.LogDir(), "management-audit.log"), client: m.client,
	})
}

// Stop kills the API server. All data stay.
func (m *Management) Stop() error { return m.lab.killOwn(ControlPlane, managementProcess) }

// Process returns the API server as it was started last.
func (m *Management) Process() *Process {
	p, _ := m.lab.Process(ControlPlane, managementProcess)
	return p
}

// RESTConfig returns a copy of a configuration with all rights, for clients of
// any kind. Their connections begin on the control plane host.
func (m *Management) RESTConfig() *rest.Config { return rest.CopyConfig(m.rest) }

// Kubectl runs kubectl as administrator and returns what it printed.
func (m *Management) Kubectl(ctx context.Context, args ...string) (string, error) {
	return m.lab.Kubectl(ctx, append([]string{"--server", m.rest.Host}, args...)...)
}

// Kubeconfig returns a kubeconfig with everything inside that has exactly the
// rights of a service account, which must exist in the management cluster.
func (m *Management) Kubeconfig(ctx context.Context, namespace, serviceAccount string) ([]byte, error) {
	token, err := m.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token for service account %s/%s of the management cluster: %w", namespace, serviceAccount, err)
	}
	config := m.lab.kubeconfig(m.rest.Host, serviceAccount, token.Status.Token)
	if err := api.FlattenConfig(config); err != nil {
		return nil, fmt.Errorf("put the certificate into a kubeconfig: %w", err)
	}
	return clientcmd.Write(*config)
}
