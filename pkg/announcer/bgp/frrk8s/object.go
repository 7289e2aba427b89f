// Package frrk8s writes the FRRConfiguration by which an frr-k8s of the cluster
// has the sessions of a node, and reads what that frr-k8s tells of them: values
// in, values out. It knows the version v1beta1 of the API, and of that what is
// needed here.
package frrk8s

// Names of frr-k8s's API.
const (
	Group      = "frrk8s.metallb.io"
	Version    = "v1beta1"
	kind       = "FRRConfiguration"
	filtered   = "filtered" // a list says what is let through
	secretType = "kubernetes.io/basic-auth"
)

// Manager is who owns the fields of an FRRConfiguration, and the value of its
// label ManagedBy. Changing it is an API change: the old owner would stay.
const Manager = "ccm-baremetal-announcer"

// Labels of an FRRConfiguration.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	partOf    = "app.kubernetes.io/part-of"
	hostname  = "kubernetes.io/hostname"
)

// Object is an FRRConfiguration.
type Object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata is what is set of an object's metadata.
type Metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	Labels          map[string]string `json:"labels"`
	OwnerReferences []Owner           `json:"ownerReferences"`
}

// Owner is the object that another one does not outlive.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// Spec is what FRR is to do on the Nodes that are selected.
type Spec struct {
	BGP          BGP      `json:"bgp"`
	NodeSelector Selector `json:"nodeSelector"`
}

// Selector selects objects by their labels.
type Selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// BGP is the sessions.
type BGP struct {
	Routers     []Router     `json:"routers"`
	BFDProfiles []BFDProfile `json:"bfdProfiles,omitempty"`
}

// Router is our side of the sessions in a VRF.
type Router struct {
	ASN       uint32     `json:"asn"`
	ID        string     `json:"id,omitempty"`
	VRF       string     `json:"vrf,omitempty"`
	Neighbors []Neighbor `json:"neighbors"`
	Prefixes  []string   `json:"prefixes,omitempty"`
}

// Neighbor is a router, and the session with it. Times are written as Go does.
type Neighbor struct {
	ASN             uint32    `json:"asn,omitempty"`
	DynamicASN      string    `json:"dynamicASN,omitempty"`
	SourceAddress   string    `json:"sourceaddress,omitempty"`
	Address         string    `json:"address,omitempty"`
	Interface       string    `json:"interface,omitempty"`
	Port            int       `json:"port"`
	PasswordSecret  *Secret   `json:"passwordSecret,omitempty"`
	HoldTime        string    `json:"holdTime"`
	KeepaliveTime   string    `json:"keepaliveTime"`
	ConnectTime     string    `json:"connectTime"`
	EBGPMultiHop    bool      `json:"ebgpMultiHop,omitempty"`
	BFDProfile      string    `json:"bfdProfile,omitempty"`
	GracefulRestart bool      `json:"enableGracefulRestart,omitempty"`
	ToAdvertise     Advertise `json:"toAdvertise"`
	ToReceive       Receive   `json:"toReceive"`
	DualStack       bool      `json:"dualStackAddressFamily,omitempty"`
}

// Secret names a Secret.
type Secret struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Advertise is what a router is told.
type Advertise struct {
	Allowed       Allowed             `json:"allowed"`
	WithLocalPref []LocalPrefPrefixes `json:"withLocalPref,omitempty"`
	WithCommunity []CommunityPrefixes `json:"withCommunity,omitempty"`
}

// Receive is what is taken from a router.
type Receive struct {
	Allowed Allowed `json:"allowed"`
}

// Allowed is prefixes that are let through.
type Allowed struct {
	Mode     string   `json:"mode"`
	Prefixes []string `json:"prefixes,omitempty"`
}

// LocalPrefPrefixes are the prefixes with a local preference.
type LocalPrefPrefixes struct {
	LocalPref uint32   `json:"localPref"`
	Prefixes  []string `json:"prefixes"`
}

// CommunityPrefixes are the prefixes with a community.
type CommunityPrefixes struct {
	Community string   `json:"community"`
	Prefixes  []string `json:"prefixes"`
}

// BFDProfile is a way to notice a dead router. Times are in milliseconds.
type BFDProfile struct {
	Name             string `json:"name"`
	ReceiveInterval  int64  `json:"receiveInterval"`
	TransmitInterval int64  `json:"transmitInterval"`
	DetectMultiplier int    `json:"detectMultiplier"`
	EchoInterval     int64  `json:"echoInterval"`
	EchoMode         bool   `json:"echoMode,omitempty"`
	PassiveMode      bool   `json:"passiveMode,omitempty"`
	MinimumTTL       int    `json:"minimumTtl"`
}
