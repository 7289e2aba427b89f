// Package e2e tests ccm-baremetal as a whole: both programs, with the accounts
// and rights of their manifests, on a real control plane in the lab.
//
// The tests share one lab and one installation, and run one after the other:
// most of them measure time. Each begins with atRest; what it creates it removes,
// and what it breaks it mends. CCM_SOAK=1 runs the same tests longer and more
// often.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// nodes is the size of the shared lab.
const nodes = 4

// document is the configuration of the shared installation. Addresses of wide
// lie in no subnet of the lab: they are announced on the default route's link.
// Nodes come and go here all the time, so they do not settle: the tests about
// that configure it.
const document = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
membership: {settle: 0s}
pools:
- name: lan
  addresses: [198.51.100.100-198.51.100.159]
- name: wide
  addresses: [203.0.113.0/24]
  autoAssign: false
`

// cluster and installed are what TestMain has made.
var (
	cluster   *lab.Lab
	installed *product.Product
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 && os.Getenv("CCM_REQUIRE_NETNS") == "" {
		fmt.Println("e2e: these tests need root: nothing was tested")
		return 0, nil
	}
	ctx, cancel := context.WithCancel(context.Background()) // go test bounds all of it
	defer cancel()
	cluster, err = lab.Up(ctx, lab.Options{Name: "e2e", Nodes: nodes, Out: os.Stderr})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Down()) }()
	installed, err = product.Install(ctx, cluster, product.Options{Manifests: "bgp", Config: document, CCMs: 2, Out: os.Stderr})
	if err != nil {
		return 1, err
	}
	if err := installed.Ready(ctx); err != nil {
		return 1, err
	}
	if code = m.Run(); code != 0 {
		tellLast(os.Stderr)
	}
	return code, nil
}

// tellLast prints the end of what the programs of the installation have said,
// for the lab and its logs are gone when the tests are.
func tellLast(w io.Writer) {
	for _, p := range cluster.Processes() {
		if !strings.HasPrefix(p.Name, product.CCM) && p.Name != product.Announcer {
			continue
		}
		fmt.Fprintf(w, "%s on %s (running: %v) said last:\n%s\n", p.Name, p.Host, p.Running(), lastWords(p, 40))
	}
}

// soak tells whether to take the time for many repetitions.
func soak() bool { return os.Getenv("CCM_SOAK") != "" }

// times is how often to repeat something: few in a normal run, many in a soak.
func times(few, many int) int {
	if soak() {
		return many
	}
	return few
}
