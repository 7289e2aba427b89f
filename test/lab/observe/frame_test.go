package observe

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"
)

var (
	ourMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	theirMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// TestQuestions compares whole frames.
func TestQuestions(t *testing.T) {
	for name, test := range map[string]struct {
		got  []byte
		want string
	}{
		"ARP": {
			arpQuestion(ourMAC, addr("198.51.100.201"), addr("198.51.100.100")),
			"ffffffffffff 020000000001 0806 0001080006040001 020000000001 c63364c9 000000000000 c6336464",
		},
		"NDP": {
			ndpQuestion(ourMAC, addr("2001:db8::1"), addr("2001:db8::a:b")),
			"3333ff0a000b 020000000001 86dd 6000000000203aff 20010db8000000000000000000000001 ff0200000000000000000001ff0a000b" +
				"8700 1c01 00000000 20010db80000000000000000000a000b 0101 020000000001",
		},
	} {
		want, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(test.want), []byte(" "), nil)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(test.got, want) {
			t.Errorf("%s\ngot  %x\nwant %x", name, test.got, want)
		}
	}
}

// TestChecksumVerifies sums a whole message: with its checksum in place the sum
// must be zero.
func TestChecksumVerifies(t *testing.T) {
	for _, target := range []string{"2001:db8::a:b", "fe80::1", "2001:db8:51::ffff"} {
		frame := ndpQuestion(ourMAC, addr("2001:db8::1"), addr(target))
		icmp := frame[etherLen+ipv6Len:]
		if sum := checksum(addr("2001:db8::1"), solicitedNode(addr(target)), icmp); sum != 0 {
			t.Errorf("%s: %#x", target, sum)
		}
	}
}

func TestParse(t *testing.T) {
	reply := arpQuestion(theirMAC, addr("198.51.100.100"), addr("198.51.100.201"))
	reply[21] = 2
	if a, ok := parseARP(reply); !ok || a.addr != addr("198.51.100.100") || a.to != addr("198.51.100.201") || a.mac.String() != theirMAC.String() {
		t.Errorf("ARP reply: %v, %v", a, ok)
	}
	for name, test := range map[string]struct {
		options []byte
		want    net.HardwareAddr
	}{
		"with its target's address": {append([]byte{optionTargetMAC, 1}, ourMAC...), ourMAC},
		"behind another option":     {append([]byte{14, 1, 0, 0, 0, 0, 0, 0, optionTargetMAC, 1}, ourMAC...), ourMAC},
		"without":                   {nil, theirMAC},
		"with an option of no size": {[]byte{optionTargetMAC, 0, 1, 2, 3, 4, 5, 6}, theirMAC},
		"with an option too long":   {[]byte{9, 200, 1, 2, 3, 4, 5, 6}, theirMAC},
	} {
		a, ok := parseNDP(advertisement(test.options))
		if !ok || a.addr != addr("2001:db8::a:b") || a.to != addr("2001:db8::1") || a.mac.String() != test.want.String() {
			t.Errorf("advertisement %s: %v, %v", name, a, ok)
		}
	}
}

// advertisement is a Neighbor Advertisement of 2001:db8::a:b.
func advertisement(options []byte) []byte {
	icmp := append([]byte{neighborAdvertisement, 0, 0, 0, 0x60, 0, 0, 0}, addr("2001:db8::a:b").AsSlice()...)
	icmp = append(icmp, options...)
	ip := []byte{0x60, 0, 0, 0, 0, byte(len(icmp)), icmpv6, 255}
	ip = append(ip, addr("fe80::2").AsSlice()...)
	ip = append(ip, addr("2001:db8::1").AsSlice()...)
	return ether(ourMAC, theirMAC, etherIPv6, append(ip, icmp...))
}

func TestParseRefusesOtherFrames(t *testing.T) {
	arp := arpQuestion(ourMAC, addr("198.51.100.201"), addr("198.51.100.100"))
	if _, ok := parseARP(arp[:len(arp)-1]); ok {
		t.Error("a cut-off ARP frame is taken")
	}
	ndp := advertisement(nil)
	if _, ok := parseNDP(ndp[:len(ndp)-1]); ok {
		t.Error("a cut-off advertisement is taken")
	}
	ndp[etherLen+7] = 64
	if _, ok := parseNDP(ndp); ok {
		t.Error("an advertisement from behind a router is taken (RFC 4861, section 7.1.2)")
	}
	if _, ok := parseNDP(ndpQuestion(ourMAC, addr("fe80::1"), addr("fe80::2"))); ok {
		t.Error("a solicitation is taken for an advertisement")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(arpQuestion(ourMAC, addr("198.51.100.201"), addr("198.51.100.100")))
	f.Add(advertisement(append([]byte{optionTargetMAC, 1}, ourMAC...)))
	f.Add(advertisement([]byte{9, 200, 1, 2, 3, 4, 5, 6}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, parse := range []func([]byte) (answer, bool){parseARP, parseNDP} {
			if a, ok := parse(frame); ok && (len(a.mac) != 6 || !a.addr.IsValid() || !a.to.IsValid()) {
				t.Errorf("%x: %v", frame, a)
			}
		}
	})
}
