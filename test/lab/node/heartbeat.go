package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// heartbeat renews the Lease of a node for as long as it runs, and declares the
// Node ready again when it had been given up. It goes on past every error.
func heartbeat(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("heartbeat", flag.ContinueOnError)
	server := flags.String("server", "", "URL of the API server")
	node := flags.String("node", "", "name of the node")
	interval := flags.Duration("interval", time.Second, "time between renewals")
	caFile := flags.String("ca", "", "file with the authority of the API server")
	tokenFile := flags.String("token", "", "file with the node's token")
	if err := flags.Parse(args); err != nil {
		return err
	}
	k, err := newKubelet(*server, *node, *caFile, *tokenFile)
	if err != nil {
		return err
	}
	tick := time.NewTicker(*interval)
	defer tick.Stop()
	for {
		if err := errors.Join(k.renew(ctx), k.declareReady(ctx)); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "node:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// kubelet is the little of a kubelet that the API server must see.
type kubelet struct {
	server, node, token string
	client              *http.Client
}

func newKubelet(server, node, caFile, tokenFile string) (*kubelet, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	return &kubelet{
		server: server, node: node, token: strings.TrimSpace(string(token)),
		client: &http.Client{
			// Shorter than what a Node survives without: a request that hangs in
			// a broken connection must not take the next ones with it.
			Timeout:   2 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}},
		},
	}, nil
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

func (k *kubelet) renew(ctx context.Context) error {
	spec := map[string]any{
		"holderIdentity":       k.node,
		"leaseDurationSeconds": 40,
		"renewTime":            time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	err := k.do(ctx, "PATCH", leases+"/"+k.node, map[string]any{"spec": spec}, nil)
	var status statusError
	if !errors.As(err, &status) || status.code != http.StatusNotFound {
		return err
	}
	return k.do(ctx, "POST", leases, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": k.node, "namespace": "kube-node-lease"},
		"spec":     spec,
	}, nil)
}

// declareReady writes only when the Node is not ready, as nothing else may
// write at rest.
func (k *kubelet) declareReady(ctx context.Context) error {
	type condition struct {
		Type   string `json:"type"`
		Status string `json:"status"`
		Reason string `json:"reason"`
	}
	type node struct {
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	var now node
	if err := k.do(ctx, "GET", "/api/v1/nodes/"+k.node, nil, &now); err != nil {
		return err
	}
	for _, c := range now.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
	}
	var want node
	want.Status.Conditions = []condition{{Type: "Ready", Status: "True", Reason: "KubeletReady"}}
	return k.do(ctx, "PATCH", "/api/v1/nodes/"+k.node+"/status", want, nil)
}

type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

// do sends body, unless it is nil, and decodes the answer into answer, unless
// that is nil.
func (k *kubelet) do(ctx context.Context, method, path string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, k.server+path, strings.NewReader(string(encoded)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+k.token)
	request.Header.Set("User-Agent", "lab-heartbeat")
	request.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	response, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode >= 300 {
		return statusError{response.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, response.Status, text)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
