package migrate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// groupFRRK8s is the API group of frr-k8s.
const groupFRRK8s = "frrk8s.metallb.io"

// mode is what speaks BGP for MetalLB, in MetalLB's words. Empty: it does not show.
type mode string

const (
	modeNative mode = "native"
	modeFRR    mode = "frr"
	modeFRRK8s mode = "frr-k8s"
)

// metallbMode finds out what speaks BGP for MetalLB: the environment of its
// speakers says so. Without these it is told from what MetalLB has written for
// frr-k8s, and from values of its chart. That somebody else uses frr-k8s says
// nothing of MetalLB, but it counts when a backend is chosen: a node has room
// for one FRR.
func (im *importer) metallbMode() {
	var written, valued, running mode
	for _, o := range im.of(groupFRRK8s, "FRRConfiguration", "FRRK8sConfiguration") {
		im.frrK8s = true
		if strings.HasPrefix(o.name, "metallb-") {
			written = modeFRRK8s
			im.note(Remark{Source: o.source, Path: "FRRConfiguration " + o.namespace + "/metallb-*",
				Message: "MetalLB has written these for its nodes, and leaves them behind: delete them when its speakers have ended, or frr-k8s goes on with its sessions and routes"})
			continue
		}
		o.note("", "belongs to frr-k8s, which goes on obeying it: nothing of it is carried over")
	}
	for _, o := range im.objects {
		if o.kind == "" && o.group == "" {
			valued = cmp.Or(valued, helmMode(im.object(o.source, o.path, o.node)))
		}
		if m, speakers := o.bgpType(); speakers {
			running = cmp.Or(running, m)
		}
	}
	im.mode = cmp.Or(running, written, valued)
	switch {
	case im.mode == modeFRRK8s:
		im.frrK8s = true
	case running == modeFRR:
		im.frrK8s = false // there is no room for it: what it would obey is left from other times
	}
}

// bgpType returns what speaks BGP in the pods of a DaemonSet, and whether they
// are MetalLB's speakers. These speak for themselves if they are told nothing.
func (o *object) bgpType() (is mode, speakers bool) {
	if o.group != "apps" || o.kind != "DaemonSet" {
		return "", false
	}
	is = modeNative
	for _, c := range o.object("spec").object("template").object("spec").items("containers") {
		for _, e := range c.items("env") {
			switch e.text("name") {
			case "METALLB_NODE_NAME":
				speakers = true
			case "METALLB_BGP_TYPE":
				is = mode(e.text("value"))
			}
		}
	}
	if !slices.Contains([]mode{modeNative, modeFRR, modeFRRK8s}, is) {
		is = ""
	}
	return is, speakers
}

// helmMode reads from values of MetalLB's chart what speaks BGP for it. What
// they leave out is a matter of the chart's version.
func helmMode(values *object) mode {
	k8s, own := values.object("frrk8s"), values.object("speaker").object("frr")
	switch {
	case k8s.boolean("enabled", false), k8s.boolean("external", false):
		return modeFRRK8s
	case own.boolean("enabled", false):
		return modeFRR
	case k8s.has("enabled") && own.has("enabled"):
		return modeNative
	}
	return ""
}

// needs says what the sessions have that the announcer's own BGP cannot do.
func (im *importer) needs() []string {
	var out []string
	for _, n := range []struct {
		what  string
		asked func(peer) bool
	}{
		{"BFD", func(p peer) bool { return p.BFDProfile != "" }},
		{"sessions in VRFs", func(p peer) bool { return p.VRF != "" }},
		{"unnumbered sessions", func(p peer) bool { return p.Interface != "" }},
	} {
		if slices.ContainsFunc(im.peers, n.asked) {
			out = append(out, n.what)
		}
	}
	return out
}

// chooseBackend decides what is to speak BGP: the announcer itself if that can
// do what is asked for, else the kind of FRR that the source has. Its own FRR is
// what is taken if nobody knows, because it depends on nothing in the cluster.
func (im *importer) chooseBackend() {
	needs := im.needs()
	switch {
	case len(needs) > 0 && im.frrK8s:
		im.backend = config.FRRK8s
	case len(needs) > 0:
		im.backend = config.FRR
	}
	if message := im.whyBackend(strings.Join(needs, ", ")); message != "" {
		im.note(Remark{Path: "the new document: bgp.backend", Message: message})
	}
	im.passwords()
}

// whyBackend says why a backend was chosen and what it takes; empty: there was
// nothing to choose.
func (im *importer) whyBackend(needs string) string {
	const own = " It takes manifests/bgp-frr in the place of manifests/base (chart: bgp.backend), with an image that you name, and must not start on a node before MetalLB's speaker has ended: there is room for one FRR"
	switch {
	case im.backend == config.FRRK8s:
		return "frr-k8s, for " + needs + ": the announcer's own BGP cannot do that, and the cluster runs frr-k8s. It takes manifests/bgp-frr-k8s in the place of manifests/base (chart: bgp.frrK8s.enabled); " +
			"and frr-k8s has to stay: if it came with MetalLB's chart it goes with that, so install it by itself then"
	case im.backend == config.FRR && im.mode == modeNative:
		return "frr, for " + needs + ": neither the announcer's own BGP nor MetalLB's, with which its speakers run, can do that. Take it out of the document to do without, as now." + own
	case im.backend == config.FRR && im.mode == modeFRR:
		return "frr, for " + needs + ": the announcer's own BGP cannot do that, and MetalLB runs an FRR beside its speakers too." + own
	case im.backend == config.FRR:
		return "frr, for " + needs + ": the announcer's own BGP cannot do that. The sources do not show which FRR MetalLB uses (METALLB_BGP_TYPE of its speakers): " +
			"if it is frr-k8s, or the cluster runs that for somebody else, write frr-k8s." + own
	case im.frrK8s && len(im.peers) > 0:
		return "the default, the announcer's own BGP, which can do all that is asked for. A router has one session with a node: where frr-k8s keeps one with the same router for somebody else, write frr-k8s"
	case im.mode == modeFRR && len(im.peers) > 0:
		return "the default, the announcer's own BGP, which can do all that is asked for: no FRR is needed any more"
	}
	return ""
}

// passwords says where the Secrets with the passwords of sessions have to be,
// which depends on the backend.
func (im *importer) passwords() {
	by, form := "the announcer", ""
	if im.backend == config.FRRK8s {
		by, form = "frr-k8s", ", with the type kubernetes.io/basic-auth, and name it in manifests/bgp-frr-k8s/rbac.yaml"
	}
	for _, p := range im.peers {
		switch r := p.password; {
		case p.plain:
			r.Message = "a password is not written into a document: put it into the Secret " + p.PasswordSecret + " beside " + by + ", under the key password" + form
			im.lose(r)
		case p.PasswordSecret != "":
			r.Message = "the Secret " + p.PasswordSecret + " is read in the namespace of " + by + ": copy it there" + form
			im.note(r)
		}
	}
}
