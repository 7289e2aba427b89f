package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Handler serves what probes and scrapers ask: /healthz, /readyz and /metrics.
func (s *Status) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Healthy(time.Now())) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Ready()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// DebugHandler serves what only somebody on the node may see: /debug/plan and
// /debug/pprof.
func (s *Status) DebugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/plan", s.servePlan)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// Serve answers on both listeners until ctx ends, and closes them.
func (s *Status) Serve(ctx context.Context, public, debug net.Listener) error {
	var g errgroup.Group
	for listener, handler := range map[net.Listener]http.Handler{public: s.Handler(), debug: s.DebugHandler()} {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // the listener is all that could fail to close
		g.Go(func() error {
			defer stop()
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
			}
			return nil
		})
	}
	return g.Wait()
}
