package diagnose

import (
	"fmt"
	"slices"
	"strings"
)

const labelExclude = "node.kubernetes.io/exclude-from-external-load-balancers"

func unknown(name, why, do string) Check { return Check{name, Unknown, why, do} }

// rehearsal tells whether the controllers are known to write nothing.
func (f Facts) rehearsal() bool { return f.Deployment.Why == "" && f.Deployment.Value.ObserveOnly }

// acted returns the hash of the document that announcers should act on: in a
// rehearsal the one that was written, as nothing is accepted there.
func (f Facts) acted() string {
	if f.rehearsal() {
		return f.Config.Value.User
	}
	return f.Config.Value.Accepted
}

func controller(f Facts) Check {
	const name = "controller"
	l := f.Controller.Value
	switch {
	case f.Controller.Why != "":
		return unknown(name, f.Controller.Why, "")
	case f.rehearsal() && (l.Holder == "" || l.Age > l.For):
		return Check{name, Warn, "the controller only observes: it leads nothing and gives no addresses", "a rehearsal ends when --observe-only is taken from the Deployment ccm-baremetal"}
	case l.Holder == "":
		return Check{name, Fail, "no controller leads: Services get no addresses", "does ccm-baremetal run? kubectl -n " + f.Namespace + " get pods -l app.kubernetes.io/name=ccm-baremetal"}
	case l.Age > l.For:
		return Check{name, Fail, fmt.Sprintf("%s led, and has been silent for %s", l.Holder, l.Age.Round(1e9)), "look at the log of ccm-baremetal"}
	}
	return Check{name, OK, l.Holder + " leads", ""}
}

func announcers(f Facts) Check {
	const name = "announcers"
	d := f.Announcers.Value
	const waits = "http://NODE:7957/readyz says what one waits for; a new one settles first"
	const endsFor = "a rehearsal ends when --observe-only is taken from the DaemonSet announcer"
	seen := fmt.Sprintf("%d of %d ready", d.Ready, d.Wanted)
	var observers, active []string
	for _, v := range f.Views {
		switch {
		case v.ObserveOnly:
			observers = append(observers, v.Node)
		case v.Announces:
			active = append(active, v.Node)
		}
	}
	switch {
	case f.Announcers.Why != "":
		return unknown(name, f.Announcers.Why, "")
	case len(observers) > 0:
		return Check{name, Warn, seen + "; " + strings.Join(observers, ", ") + " only observe: nothing is announced there", endsFor}
	case d.ObserveOnly:
		return Check{name, Warn, seen + "; they only observe: nothing is announced", endsFor}
	case d.Ready == 0 && len(active) > 0:
		return Check{name, Warn, seen + "; there are announcements all the same, by " + strings.Join(active, ", "), waits}
	case d.Ready == 0:
		return Check{name, Fail, seen, "kubectl -n " + f.Namespace + " describe daemonset announcer; " + waits + "; one that says Settling or MembershipIncomplete announces all the same"}
	case d.Ready < d.Wanted:
		return Check{name, Warn, seen, waits}
	}
	return Check{name, OK, seen, ""}
}

func configuration(f Facts) Check {
	const name = "configuration"
	c := f.Config.Value
	const look = "kubectl baremetal check-config --cluster FILE says why; so does the event on the ConfigMap ccm-baremetal"
	switch {
	case f.Config.Why != "":
		return unknown(name, f.Config.Why, "")
	case c.Faults != "":
		return Check{name, Fail, "the ConfigMap ccm-baremetal has faults: " + c.Faults, look}
	case f.rehearsal() && c.User != "" && c.User != c.Accepted:
		return Check{name, Warn, "hash " + c.User + " is rehearsed, and " + inForce(c.Accepted), "in force is what a controller accepts that does more than observe"}
	case c.Accepted == "":
		return Check{name, Fail, inForce(""), "write one into the ConfigMap ccm-baremetal, key config.yaml"}
	case c.User == "":
		return Check{name, Warn, "hash " + c.Accepted + " is in force, and there is no ConfigMap ccm-baremetal", "right only where the controller reads a file (--cloud-config)"}
	case c.User != c.Accepted:
		return Check{name, Fail, fmt.Sprintf("hash %s is in force, not %s, which was written", c.Accepted, c.User), look}
	}
	return Check{name, OK, inForce(c.Accepted), ""}
}

func inForce(hash string) string {
	if hash == "" {
		return "no document is in force"
	}
	return "hash " + hash + " is in force"
}

// exclude lists who carries the label, also with the empty value that kubectl
// get nodes -L does not show.
func exclude(f Facts) Check {
	const name = "exclude-label"
	if f.Nodes.Why != "" {
		return unknown(name, f.Nodes.Why, "")
	}
	var carriers []string
	silent, able := 0, 0
	for _, n := range f.Nodes.Value {
		if n.Windows {
			continue
		}
		able++
		if n.Exclude == nil {
			continue
		}
		value := "present and empty, as kubeadm sets it"
		if *n.Exclude != "" {
			value = fmt.Sprintf("%q", *n.Exclude)
		}
		carriers = append(carriers, n.Name+" ("+value+")")
		if !isFalse(*n.Exclude) {
			silent++
		}
	}
	seen := fmt.Sprintf("label %s on %s", labelExclude, strings.Join(carriers, ", "))
	const do = "if such a node is to announce: kubectl label node NODE " + labelExclude + "-"
	switch {
	case len(carriers) == 0:
		return Check{name, OK, "no Node carries " + labelExclude, ""}
	case f.Config.Why == "" && f.Config.Value.IgnoreExclude:
		return Check{name, OK, seen + "; the configuration ignores it", ""}
	case silent == able:
		return Check{name, Fail, seen + ": no Node is left to announce anything", do}
	case silent == 0:
		return Check{name, OK, seen + ", each with a false value, which does not count", ""}
	}
	return Check{name, Warn, seen, do}
}

// isFalse tells whether a value is one that strconv.ParseBool takes for false.
func isFalse(value string) bool {
	return slices.Contains([]string{"0", "f", "F", "false", "FALSE", "False"}, value)
}

// gossip compares what the announcers see of each other.
func gossip(f Facts) Check {
	const name = "gossip"
	var asked, mute, gaps []string
	for _, v := range f.Views {
		if v.Why != "" {
			mute = append(mute, v.Node+" ("+v.Why+")")
			continue
		}
		asked = append(asked, v.Node)
	}
	for _, v := range f.Views {
		if v.Why != "" {
			continue
		}
		for _, other := range asked {
			if !slices.Contains(v.Members, other) {
				gaps = append(gaps, v.Node+" does not see "+other)
			}
		}
	}
	const do = "open port 7956 between all nodes, TCP and UDP; the logs name refused packets"
	switch {
	case len(gaps) > 0:
		return Check{name, Fail, strings.Join(gaps, ", "), do}
	case len(asked) == 0:
		return unknown(name, "no announcer could be asked: "+orNone(mute), "it takes the right to create pods/portforward, or --announcer-url")
	case len(mute) > 0:
		return unknown(name, fmt.Sprintf("%d announcers see each other; not asked: %s", len(asked), strings.Join(mute, ", ")), "")
	}
	return Check{name, OK, fmt.Sprintf("%d announcers see each other", len(asked)), ""}
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "there is none"
	}
	return strings.Join(list, ", ")
}

// sameConfig looks for members that act on another document.
func sameConfig(f Facts) Check {
	const name = "same-configuration"
	wanted := f.acted()
	if f.Config.Why != "" || wanted == "" {
		return unknown(name, "the document in force is not known", "")
	}
	i := slices.IndexFunc(f.Views, func(v View) bool { return v.Why == "" })
	if i < 0 {
		return unknown(name, "no announcer could be asked", "")
	}
	var differ []string
	for member, hash := range f.Views[i].Config {
		if hash != "" && hash != wanted {
			differ = append(differ, member+" ("+hash+")")
		}
	}
	slices.Sort(differ)
	if len(differ) > 0 {
		return Check{name, Warn, "other documents are used by " + strings.Join(differ, ", "), "a moment after an edit that is right; else look whether these announcers reach the API server"}
	}
	return Check{name, OK, "all announcers act on " + wanted, ""}
}
