package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

//go:embed ui.html
var uiTemplate string

// policy lets the page load nothing and send nothing; its style is its own.
const policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func newUICommand(c *cluster) *cobra.Command {
	var listen string
	var once bool
	cmd := &cobra.Command{
		Use:     "ui",
		Short:   "Serve a read-only status page on this machine",
		Long:    uiHelp,
		Example: uiExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once {
				p, err := readPage(cmd.Context(), c)
				if err != nil {
					return err
				}
				return render(cmd.OutOrStdout(), p)
			}
			listener, err := listenLoopback(listen)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "http://%s/ (end with Ctrl-C)\n", listener.Addr())
			return serve(cmd.Context(), listener, func(ctx context.Context) (uiPage, error) { return readPage(ctx, c) })
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8958", "loopback `address` and port; port 0: any")
	cmd.Flags().BoolVar(&once, "once", false, "write the page to the standard output, and serve nothing")
	return cmd
}

// listenLoopback refuses addresses that others can reach.
func listenLoopback(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("--listen %s: it is no loopback address; whoever reaches the page sees the cluster with your rights", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return listener, nil
}

// serve answers until ctx ends.
func serve(ctx context.Context, listener net.Listener, read func(context.Context) (uiPage, error)) error {
	server := &http.Server{Handler: handler(listener.Addr().String(), read), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // the listener is all that could fail to close
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// handler serves the page to whoever asks for it by its own name: a site in
// the same browser that lets a name of its own point here gets nothing.
func handler(host string, read func(context.Context) (uiPage, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		p, err := read(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = render(w, p) // the reader has gone
	})
	_, port, _ := net.SplitHostPort(host) // of a listener: always right
	names := []string{host, "localhost:" + port}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !slices.Contains(names, r.Host) {
			http.Error(w, "ask for it by "+host, http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// uiPage is all that the page shows.
type uiPage struct {
	Time     time.Time
	Hash     string
	Pools    []uiPool
	Services []uiService
	Asked    string // the announcer that was asked; empty: none
	Silence  string // why none was
	Nodes    []uiNode
	Members  []ask.Member
	Sessions []ask.Session
	Moves    []uiMove // newest first

	Observers string // the announcer that was asked, if it only observes; empty: it announces
}

// movesShown is how many moves the page has room for.
const movesShown = 20

// uiMove is a move of an address in words.
type uiMove struct {
	When, Address, From, To, Why string
	Services                     []string
	Served                       bool // somebody has it now
}

// movesOf puts the newest moves of a plan into words.
func movesOf(p status.Plan) []uiMove {
	var out []uiMove
	for _, m := range p.Moves[:min(len(p.Moves), movesShown)] {
		why := string(m.Cause)
		if meaning := m.Cause.Meaning(); meaning != "" {
			why += ": " + meaning
		}
		out = append(out, uiMove{
			When: m.Time.UTC().Format("2006-01-02 15:04:05"), Address: m.Address.String(), Services: m.Services,
			From: cmp.Or(m.From, "nobody"), To: cmp.Or(m.To, "nobody"), Why: why, Served: m.To != "",
		})
	}
	return out
}

type uiPool struct {
	inspect.Pool
	Percent int
}

// Total and Left are its sizes, as far as addresses can be counted.
func (p uiPool) Total() string { return inspect.Count(p.Size) }
func (p uiPool) Left() string  { return inspect.Count(p.Free) }

// Full tells whether the pool deserves a look.
func (p uiPool) Full() bool { return p.Percent >= 90 || p.Waiting > 0 }

type uiService struct {
	service
	Owners []string // for each address of the layer 2 election
}

// Well tells whether it is served.
func (s uiService) Well() bool { return s.well() }

// Why is what is most worth reading about it.
func (s uiService) Why() string { return s.why() }

// Since is when that came to be so.
func (s uiService) Since() string {
	if s.Allocated.Status != "True" {
		return inspect.Instant(s.Allocated.Since)
	}
	return inspect.Instant(s.Announced.Since)
}

type uiNode struct {
	Name    string
	Owns    int
	LeftOut []string // reasons, each with the number of addresses
}

func readPage(ctx context.Context, c *cluster) (uiPage, error) {
	client, a, err := c.allocations(ctx)
	if err != nil {
		return uiPage{}, err
	}
	services, err := readServices(ctx, client, "", a)
	if err != nil {
		return uiPage{}, err
	}
	var p status.Plan
	all, err := c.announcers(ctx)
	if err == nil {
		p, err = all.plan(ctx, "")
	}
	return newPage(time.Now().UTC(), a, services, p, err), nil
}

// newPage puts the page together. err is why there is no plan.
func newPage(now time.Time, a inspect.Allocations, services []service, p status.Plan, err error) uiPage {
	out := uiPage{Time: now, Hash: a.Hash}
	for _, pool := range a.Pools {
		out.Pools = append(out.Pools, uiPool{pool, percent(pool)})
	}
	owners := map[string]string{}
	for _, v := range p.Verdicts {
		owners[v.Address.String()] = cmp.Or(v.Owner, string(v.Reason))
	}
	for _, s := range services {
		u := uiService{service: s}
		for _, address := range s.Addresses {
			if owner := owners[address]; owner != "" {
				u.Owners = append(u.Owners, owner)
			}
		}
		out.Services = append(out.Services, u)
	}
	if err != nil {
		out.Silence = err.Error()
		return out
	}
	out.Asked = p.World.Node
	out.Nodes = nodesOf(p)
	out.Moves = movesOf(p)
	if p.ObserveOnly {
		out.Observers = out.Asked
	}
	out.Members, out.Sessions = ask.NewMembers(p).Members, ask.NewSessions(p).Sessions
	return out
}

// nodesOf returns each Node with what it announces and why it is left out.
func nodesOf(p status.Plan) []uiNode {
	owns, out := map[string]int{}, map[string]map[string]int{}
	for _, v := range p.Verdicts {
		owns[v.Owner]++
		for _, x := range v.Excluded {
			if out[x.Node] == nil {
				out[x.Node] = map[string]int{}
			}
			out[x.Node][string(x.Reason)+meaning(x.Reason, x.Node, p)]++
		}
	}
	var nodes []uiNode
	for _, n := range p.World.Nodes {
		u := uiNode{Name: n.Name, Owns: owns[n.Name]}
		for reason, count := range out[n.Name] {
			u.LeftOut = append(u.LeftOut, fmt.Sprintf("%s: %d addresses", reason, count))
		}
		slices.Sort(u.LeftOut)
		nodes = append(nodes, u)
	}
	slices.SortFunc(nodes, func(a, b uiNode) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// meaning says of the exclude label what its value is: an empty one is easily missed.
func meaning(r plan.Reason, node string, p status.Plan) string {
	if r != plan.ExcludeLabel {
		return ""
	}
	for _, n := range p.World.Nodes {
		if value, present := n.Labels[config.LabelExclude]; n.Name == node && present {
			if value == "" {
				return " (present and empty)"
			}
			return " (" + value + ")"
		}
	}
	return ""
}

func render(w io.Writer, p uiPage) error {
	page, err := template.New("ui").Parse(uiTemplate)
	if err != nil {
		return fmt.Errorf("read the template of the page: %w", err)
	}
	return page.Execute(w, p)
}
