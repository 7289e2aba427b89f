package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
)

// SetNeighbour writes a fixed entry into the neighbour table of a host, as if
// mac had answered for addr; that is how to send packets for an address that
// nobody announces.
func (l *Lab) SetNeighbour(ctx context.Context, host string, addr netip.Addr, mac string) error {
	return ip(ctx, l.namespace(host), []string{fmt.Sprintf("neighbour replace %s lladdr %s dev eth0 nud permanent", addr, mac)})
}

// Get fetches a URL from a host over a new connection and returns the body. A
// status other than 2xx is an error.
func (l *Lab) Get(ctx context.Context, host, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := l.HTTPClient(host).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", url, err)
	}
	if response.StatusCode/100 != 2 {
		return "", fmt.Errorf("get %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// HTTPClient returns a client whose connections begin on a host, each request
// over a new one. It gives up after five seconds.
func (l *Lab) HTTPClient(host string) *http.Client {
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DialContext:       netns.Dialer(l.namespace(host)),
			DisableKeepAlives: true,
		},
	}
}

// Watch asks from a host, every interval, who has the addresses, and records
// the answers, until the Watcher is closed or the lab is down. At one time an
// address can be watched once from each host.
func (l *Lab) Watch(host string, interval time.Duration, addrs ...netip.Addr) (w *observe.Watcher, err error) {
	c := observe.Config{Link: "eth0", Addresses: addrs, Interval: interval}
	c.SendersV4, c.SendersV6 = askers()
	err = netns.Do(l.namespace(host), func() error {
		w, err = observe.Watch(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch from %s: %w", host, err)
	}
	l.onDown(w)
	return w, nil
}

// Echo sends perSecond datagrams from a host to a pod's UDP port, or to what
// leads there, until it is stopped.
func (l *Lab) Echo(ctx context.Context, host string, target netip.AddrPort, perSecond int) (*observe.Echo, error) {
	conn, err := netns.Dialer(l.namespace(host))(ctx, "udp", target.String())
	if err != nil {
		return nil, fmt.Errorf("echo from %s: %w", host, err)
	}
	if err := observe.Widen(conn.(*net.UDPConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("echo from %s: %w", host, err), conn.Close())
	}
	return observe.StartEcho(conn, perSecond), nil
}

// Connects fetches a URL from a host every interval, each time over a new
// connection, until it is stopped. An attempt may take as long as patience
// says; the kernel repeats a lost SYN after one second.
func (l *Lab) Connects(host, url string, interval, patience time.Duration) *observe.Series {
	return observe.Repeat(interval, patience, func(ctx context.Context) error {
		_, err := l.Get(ctx, host, url)
		return err
	})
}
