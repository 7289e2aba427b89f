package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
)

// Ports of every pod.
const (
	httpPort = 8080
	tcpPort  = 8081
	udpPort  = 8082
)

// pod serves on every address of one pod: HTTP that says who answers, and TCP
// and UDP that send back what they get.
func pod(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("pod", flag.ContinueOnError)
	name := flags.String("name", "", "name of the pod")
	node := flags.String("node", "", "name of its node")
	ips := flags.String("ips", "", "its addresses, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	failed := make(chan error)
	for ip := range strings.SplitSeq(*ips, ",") {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return fmt.Errorf("-ips: %w", err)
		}
		for _, serve := range []func(netip.Addr) error{
			func(a netip.Addr) error { return serveHTTP(a, handler(*name, *node)) },
			echoTCP,
			echoUDP,
		} {
			go func() { failed <- serve(addr) }()
		}
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// handler says who answers; /client says whom the pod believes to answer.
func handler(name, node string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "pod %s on %s\n", name, node)
	})
	mux.HandleFunc("/client", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.RemoteAddr)
	})
	return mux
}

func serveHTTP(ip netip.Addr, h http.Handler) error {
	return http.ListenAndServe(netip.AddrPortFrom(ip, httpPort).String(), h)
}

func echoTCP(ip netip.Addr) error {
	listener, err := net.Listen("tcp", netip.AddrPortFrom(ip, tcpPort).String())
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn) // its error is the client's affair
		}()
	}
}

// widen lets a socket hold some thousand datagrams while the pod gets no CPU: what
// is lost is to be the fault of whoever leads packets to it. (Package observe
// does the same; this program is built of nothing but the standard library.)
func widen(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, set)
}

func echoUDP(ip netip.Addr) error {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, udpPort)))
	if err != nil {
		return err
	}
	if err := widen(conn); err != nil {
		return err
	}
	buffer := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err == nil {
			conn.WriteToUDPAddrPort(buffer[:n], from) // a lost answer is seen by the one who counts
		}
	}
}
