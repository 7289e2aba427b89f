package source

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	// proxyPort is where kube-proxy, and what replaces it, tells of its health.
	proxyPort = "10256"

	dataPathEvery  = 5 * time.Second
	dataPathWithin = 2 * time.Second
	maxAnswer      = 4 << 10
)

// followDataPath looks at the data path as long as the configuration wants it.
func (w *World) followDataPath(ctx context.Context) {
	tick := time.NewTicker(dataPathEvery)
	defer tick.Stop()
	for {
		if c, err := w.Config(); err == nil && c.DataPathCheck == config.DataPathAuto {
			w.vitals.noteDataPath(w.probe(ctx), time.Now())
		} else {
			w.vitals.forgetDataPath()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// askProxy asks this node's kube-proxy how it is: on loopback, where it listens
// unless it was told to use the node's address only.
func (w *World) askProxy(ctx context.Context) health {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: dataPathWithin}
	hosts := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	w.mu.Lock()
	hosts = append(hosts, w.nodes.rows[w.o.Node].internal...)
	w.mu.Unlock()
	for _, host := range hosts {
		if v := askHealth(ctx, client, net.JoinHostPort(host.String(), proxyPort)); v != noSign {
			return v
		}
	}
	return noSign
}

// askHealth reads kube-proxy's answer. It says 503 when its rules are out of
// date, but also when the Node is about to be removed, which is for others to
// judge and no fault of the data path.
func askHealth(ctx context.Context, client *http.Client, address string) health {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return noSign
	}
	response, err := client.Do(request)
	if err != nil {
		return noSign
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return noSign
	case response.StatusCode == http.StatusOK:
		return well
	case response.StatusCode != http.StatusServiceUnavailable:
		return noSign
	}
	var answer struct {
		NodeEligible *bool `json:"nodeEligible"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.NodeEligible != nil && !*answer.NodeEligible {
		return noSign
	}
	return unwell
}
