package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward reaches announcers through the API server and the kubelet, as
// kubectl port-forward does.
type forward struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
}

func (f *forward) reach(ctx context.Context, t target) (string, func(), error) {
	dialer, err := f.dialer(t.pod)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan struct{})
	var complaint strings.Builder // read after the end only
	ports, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", debugPort)}, ready, io.Discard, &complaint)
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("forward a port to %s: %w", t.pod, err)
	}
	ended := make(chan struct{})
	var end error // valid once ended is closed
	go func() {
		defer close(ended)
		end = ports.ForwardPorts()
	}()
	done := func() { cancel(); <-ended }
	select {
	case <-ended:
		cancel()
		return "", nil, fmt.Errorf("forward a port to %s: %w %s", t.pod, end, complaint.String())
	case <-ctx.Done():
		done()
		return "", nil, fmt.Errorf("forward a port to %s: %w", t.pod, ctx.Err())
	case <-ready:
	}
	local, err := ports.GetPorts()
	if err != nil {
		done()
		return "", nil, fmt.Errorf("forward a port to %s: %w", t.pod, err)
	}
	return loopback(local[0].Local), done, nil
}

// dialer speaks SPDY within a web socket, as API servers have it since 1.31,
// else SPDY.
func (f *forward) dialer(pod string) (httpstream.Dialer, error) {
	url := f.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.namespace).Name(pod).SubResource("portforward").URL()
	round, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, fmt.Errorf("forward a port: %w", err)
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: round}, http.MethodPost, url)
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, f.config)
	if err != nil {
		return nil, fmt.Errorf("forward a port: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(socket, plain, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
