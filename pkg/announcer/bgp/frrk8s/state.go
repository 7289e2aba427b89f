package frrk8s

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// NodeLabel is on each BGPSessionState: the node whose session it is.
const NodeLabel = Group + "/node"

// Session is what frr-k8s tells of a session (a BGPSessionState), in FRR's
// words.
type Session struct {
	VRF  string `json:"vrf"`
	Peer string `json:"peer"` // see PeerName
	BGP  string `json:"bgpStatus"`
	BFD  string `json:"bfdStatus"`
}

// ReadSession reads a BGPSessionState.
func ReadSession(text []byte) (Session, error) {
	var o struct {
		Status Session `json:"status"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return Session{}, fmt.Errorf("read a BGPSessionState: %w", err)
	}
	if o.Status.BFD == "N/A" {
		o.Status.BFD = ""
	}
	o.Status.BFD = strings.ToLower(o.Status.BFD)
	return o.Status, nil
}

// PeerName returns what a BGPSessionState calls a peer. The colons of an IPv6
// address would not fit a label.
func PeerName(p config.Peer) string {
	if p.Interface == "" && p.Address.Is6() {
		return strings.ReplaceAll(p.Address.StringExpanded(), ":", "-")
	}
	return p.Router()
}

// NodeState is what frr-k8s tells of the FRR of a node (an FRRNodeState).
type NodeState struct {
	Fault   string // why FRR does not have what the FRRConfigurations say; empty: it does
	Running map[Network]bool
}

// Network is a prefix that an FRR advertises in a VRF.
type Network struct {
	VRF    string
	Prefix netip.Prefix
}

const success = "success"

// ReadNodeState reads an FRRNodeState.
func ReadNodeState(text []byte) (NodeState, error) {
	var o struct {
		Status struct {
			RunningConfig        string `json:"runningConfig"`
			LastConversionResult string `json:"lastConversionResult"`
			LastReloadResult     string `json:"lastReloadResult"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return NodeState{}, fmt.Errorf("read an FRRNodeState: %w", err)
	}
	s := NodeState{Running: networks(o.Status.RunningConfig)}
	if result := o.Status.LastConversionResult; result != success {
		s.Fault = "frr-k8s does not accept the FRRConfigurations of this node: " + short(result)
	} else if result := o.Status.LastReloadResult; result != success {
		s.Fault = "FRR has not taken its configuration: " + short(result)
	}
	return s, nil
}

// short makes one line of what may be pages.
func short(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " ..."
	}
	if text == "" {
		return "it does not say why"
	}
	return text
}

// networks reads what is advertised from the configuration that FRR shows.
func networks(running string) map[Network]bool {
	out := map[Network]bool{}
	vrf, within := "", false
	for line := range strings.Lines(running) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case !strings.HasPrefix(line, " "): // a context begins or ends
			vrf, within = "", strings.HasPrefix(line, "router bgp ")
			if len(words) == 5 && words[3] == "vrf" {
				vrf = words[4]
			}
		case within && words[0] == "network" && len(words) > 1:
			if p, err := netip.ParsePrefix(words[1]); err == nil {
				out[Network{vrf, p}] = true
			}
		}
	}
	return out
}

// CheckSecret says what is wrong with a Secret for frr-k8s to read the password
// for a router from it; nil: nothing. Nothing of the password is in the error.
func CheckSecret(text []byte) error {
	var o struct {
		Type string            `json:"type"`
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return errors.New("it cannot be read")
	}
	switch password := o.Data["password"]; {
	case o.Type != secretType:
		return fmt.Errorf("its type is %s, and frr-k8s wants %s", o.Type, secretType)
	case len(password) == 0:
		return errors.New("it has no password")
	case strings.ContainsAny(string(password), " \t\r\n"):
		return errors.New("its password has a blank or a line break in it, which FRR cannot read")
	case len(password) > longestPassword:
		return fmt.Errorf("its password has more than %d bytes", longestPassword)
	}
	return nil
}

const longestPassword = 80 // bytes, of the kernel
