package manifests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/expect"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

const nodes = 3

// cluster, root, renderer and programs are what TestMain has made.
var (
	cluster  *lab.Lab
	root     string // of the repository
	renderer string // the program of tools/install
	programs string // the directory of ours; product.Install builds into it too, which is then done
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 && os.Getenv("CCM_REQUIRE_NETNS") == "" {
		fmt.Println("manifests: these tests need root: nothing was tested")
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if root, err = product.Root(ctx); err != nil {
		return 1, err
	}
	cluster, err = lab.Up(ctx, lab.Options{Name: "manifests", Nodes: nodes, Out: os.Stderr})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Down()) }()
	renderer = filepath.Join(cluster.Dir(), "install")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", renderer, ".")
	cmd.Dir, cmd.Env = filepath.Join(root, "tools", "install"), append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build what renders the chart: %w: %s", err, printed)
	}
	programs = filepath.Join(cluster.Dir(), "product")
	if err := os.MkdirAll(programs, 0o700); err != nil {
		return 1, err
	}
	if err := product.Build(ctx, root, programs, os.Stderr); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// rendered writes what the chart makes of values in a namespace into a file, and
// returns its path.
func rendered(t *testing.T, namespace, values string) string {
	t.Helper()
	dir := t.TempDir()
	given := filepath.Join(dir, "values.yaml")
	expect.Must(t, os.WriteFile(given, []byte(values), 0o600))
	cmd := exec.CommandContext(expect.Bounded(t), renderer, "-manifests", filepath.Join(root, "manifests"), "-chart", "-namespace", namespace, "-values", given)
	text, err := cmd.Output()
	expect.Must(t, err)
	path := filepath.Join(dir, "objects.yaml")
	expect.Must(t, os.WriteFile(path, text, 0o600))
	return path
}

// token returns one of a service account.
func token(t *testing.T, namespace, account string) string {
	t.Helper()
	request, err := cluster.Client().CoreV1().ServiceAccounts(namespace).CreateToken(expect.Bounded(t), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	expect.Must(t, err)
	return request.Status.Token
}
