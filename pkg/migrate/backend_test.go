package migrate

import (
	"fmt"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// speakersWith is a DaemonSet of MetalLB with more in its environment.
func speakersWith(env string) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: speaker, namespace: metallb-system}
spec: {template: {spec: {containers: [{name: speaker, env: [{name: METALLB_NODE_NAME}%s]}]}}}
`, env)
}

func frrConfiguration(name string) string {
	return fmt.Sprintf("\n---\napiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: %s, namespace: x}\n", name)
}

// The speakers say how MetalLB speaks BGP; only without them what MetalLB has
// written counts, and then the values of its chart. What others have written for
// frr-k8s never says it, but takes part in the choice of a backend.
func TestSpeakersTellTheModeBeforeObjectsAndValues(t *testing.T) {
	const asked = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: a}
spec: {addresses: [192.0.2.0/29]}
---
apiVersion: metallb.io/v1beta1
kind: BFDProfile
metadata: {name: fast}
---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor}
spec: {peerAddress: 198.51.100.1, peerASN: 64501, myASN: 64500, localASN: 64999, sourceAddress: 198.51.100.9, bfdProfile: fast}
---
apiVersion: metallb.io/v1beta1
kind: BGPAdvertisement
metadata: {name: a}
`
	bgpType := func(kind string) string { return speakersWith(", {name: METALLB_BGP_TYPE, value: " + kind + "}") }
	stranger := "\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: x}\nspec: {template: {spec: {containers: [{name: x, env: [{name: METALLB_BGP_TYPE, value: frr}]}]}}}\n"
	ours, theirs := frrConfiguration("metallb-node-a"), frrConfiguration("receive-all")
	for name, c := range map[string]struct {
		also    string
		ignored bool // localASN and sourceAddress, as in frr-k8s mode
		backend config.Backend
	}{
		"nothing":                        {"", false, config.FRR},
		"native, unsaid":                 {speakersWith(""), false, config.FRR},
		"native":                         {bgpType("native"), false, config.FRR},
		"native beside frr-k8s":          {bgpType("native") + theirs, false, config.FRRK8s},
		"native, was frr-k8s":            {speakersWith("") + ours, false, config.FRRK8s},
		"frr":                            {bgpType("frr"), false, config.FRR},
		"frr, was frr-k8s":               {bgpType("frr") + ours, false, config.FRR},
		"frr-k8s":                        {bgpType("frr-k8s"), true, config.FRRK8s},
		"frr-k8s, values of another day": {bgpType("frr-k8s") + "\n---\nspeaker: {frr: {enabled: true}}\n", true, config.FRRK8s},
		"an unknown kind, theirs":        {bgpType("novel") + theirs, false, config.FRRK8s},
		"a kind from elsewhere, ours":    {speakersWith(", {name: METALLB_BGP_TYPE, valueFrom: {configMapKeyRef: {name: x, key: y}}}") + ours, true, config.FRRK8s},
		"ours":                           {ours, true, config.FRRK8s},
		"theirs":                         {theirs, false, config.FRRK8s},
		"values: frr-k8s":                {"\n---\nfrrk8s: {external: true}\n", true, config.FRRK8s},
		"values: frr":                    {"\n---\nspeaker: {frr: {enabled: true}}\n", false, config.FRR},
		"values: frr-k8s, speakers frr":  {"\n---\nfrrk8s: {enabled: true}\n" + bgpType("frr"), false, config.FRR},
		"a DaemonSet of somebody":        {stranger + ours, true, config.FRRK8s},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Import([]Source{{Name: "f", Text: []byte(asked + c.also)}})
			if err != nil {
				t.Fatal(err)
			}
			tor := r.Config.BGP.Peers[0]
			if kept := tor.LocalASN == 64999 && tor.SourceAddress.IsValid(); kept == c.ignored || r.Config.BGP.Backend != c.backend {
				t.Errorf("localASN %d, sourceAddress %s, backend %s", tor.LocalASN, tor.SourceAddress, r.Config.BGP.Backend)
			}
		})
	}
}
