package observe

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"
)

// TestEcho has a server that loses the datagrams 10 to 19 and sends 30 twice.
func TestEcho(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			switch number := binary.BigEndian.Uint64(buffer); {
			case number >= 10 && number < 20:
				continue
			case number == 30:
				server.WriteTo(buffer[:n], from)
			}
			server.WriteTo(buffer[:n], from)
		}
	}()
	conn, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	e := StartEcho(conn, 100)
	time.Sleep(time.Second)
	loss := e.Stop(3 * time.Second)
	if loss.Sent < 40 || len(loss.Lost) != 10 || loss.Duplicates != 1 {
		t.Fatalf("%v, want ten lost and one twice", loss)
	}
	if span := loss.Lost[9].Sub(loss.Lost[0]); loss.Longest <= span {
		t.Errorf("longest gap %v, want it to last until the next answered datagram, more than %v", loss.Longest, span)
	}
}

func TestLossOfEverything(t *testing.T) {
	zero := time.Now()
	e := &Echo{sent: []time.Time{zero, zero.Add(time.Second)}, back: []bool{false, false}}
	if l := e.loss(); len(l.Lost) != 2 || l.Longest != time.Second {
		t.Errorf("%v", l)
	}
}

func TestSeries(t *testing.T) {
	failure := errors.New("no")
	s := Repeat(5*time.Millisecond, 20*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done() // attempts overlap, and each ends by its own patience
		return failure
	})
	time.Sleep(500 * time.Millisecond)
	attempts := s.Stop()
	if len(attempts) < 2 || len(attempts.Failed()) != len(attempts) {
		t.Errorf("%v", attempts)
	}
	for i, a := range attempts {
		if a.Took < 20*time.Millisecond || a.Err != failure {
			t.Errorf("attempt %d: %v, %v", i, a.Took, a.Err)
		}
		if i > 0 && a.Begin.Before(attempts[i-1].Begin) {
			t.Errorf("attempt %d is out of order", i)
		}
	}
}
