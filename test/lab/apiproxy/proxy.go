// Package apiproxy stands between clients and an API server and can be told to
// misbehave as a bad network, an overloaded server or a lost history would.
package apiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Config says where a Proxy listens and what is behind it.
type Config struct {
	Listener  net.Listener // closed by Close
	Cert      tls.Certificate
	Server    *url.URL
	Transport http.RoundTripper // to Server; clients' own credentials go through
}

// A Proxy passes requests on to the API server, through the faults that are
// set. Without any it only passes them on.
type Proxy struct {
	forward http.Handler
	server  *http.Server
	done    chan struct{}
	failure error // why serving ended by itself; valid once done is closed

	mu      sync.Mutex
	handler http.Handler
	alive   context.Context // ends for requests in work when Break is called
	kill    context.CancelFunc
}

// Start starts a Proxy.
func Start(c Config) *Proxy {
	forward := httputil.NewSingleHostReverseProxy(c.Server)
	forward.Transport = c.Transport
	forward.FlushInterval = -1 // a watch event must not wait for the next one
	// What breaks here is meant to break, and its clients say so.
	silent := log.New(io.Discard, "", 0)
	forward.ErrorLog = silent
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // a server that is gone answers nothing
	}
	p := &Proxy{forward: forward, done: make(chan struct{})}
	p.alive, p.kill = context.WithCancel(context.Background())
	p.Set()
	p.server = &http.Server{
		Handler:           p,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{c.Cert}},
		ErrorLog:          silent,
		ReadHeaderTimeout: time.Minute,
	}
	go func() {
		defer close(p.done)
		if err := p.server.ServeTLS(c.Listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			p.failure = err
		}
	}()
	return p
}

// Set puts faults in place of those that were set before. The first sees a
// request first. Requests that are in work are not affected.
func (p *Proxy) Set(faults ...Fault) {
	handler := p.forward
	for i := len(faults) - 1; i >= 0; i-- {
		handler = faults[i](handler)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handler = handler
}

// Break ends all requests in work, watches among them, without an answer.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
	p.alive, p.kill = context.WithCancel(context.Background())
}

// Close ends all requests and the Proxy. It returns an error when the Proxy had
// come to an end before.
func (p *Proxy) Close() error {
	p.Break()
	err := p.server.Close()
	<-p.done
	return errors.Join(err, p.failure)
}

// ServeHTTP handles one request, which it reads whole before.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A server may refuse a write without reading it. Of two HTTP/2 connections in a
	// row one then loses the end of its answer now and then, and the client waits.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	p.mu.Lock()
	handler, alive := p.handler, p.alive
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(alive, cancel)()
	handler.ServeHTTP(w, r.WithContext(ctx))
}
