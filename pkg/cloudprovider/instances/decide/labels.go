package decide

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Keys of the labels that say what a machine is: each in its present and in
// its former spelling, which the framework keeps equal. Of two that differ it
// believes the former.
var (
	zoneKeys   = []string{"topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"}
	regionKeys = []string{"topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"}
	typeKeys   = []string{"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"}
)

// A Description is what a machine is. An empty field means that nobody says.
type Description struct {
	Zone, Region, InstanceType string
	Labels                     map[string]string
}

// Describe puts together what is known about the machine of a Node: what the
// inventory says, else the host's labels. The product name of the host is
// taken if the Node has no instance type of its own. Both entry and host may
// be nil.
func Describe(entry *config.Machine, host *Host, labels map[string]string, m config.Metal3) Description {
	var d Description
	if host != nil {
		d = ofHost(*host, labels, m)
	}
	if entry != nil {
		d.Zone = first(entry.Zone, d.Zone)
		d.Region = first(entry.Region, d.Region)
		d.InstanceType = first(entry.InstanceType, d.InstanceType)
		if len(entry.Labels) > 0 && d.Labels == nil {
			d.Labels = map[string]string{}
		}
		maps.Copy(d.Labels, entry.Labels)
	}
	return d
}

func ofHost(host Host, labels map[string]string, m config.Metal3) Description {
	d := Description{
		Zone:         host.Labels[m.ZoneLabel],
		Region:       host.Labels[m.RegionLabel],
		InstanceType: host.Labels[m.InstanceTypeLabel],
	}
	if d.InstanceType == "" && labels[typeKeys[0]] == "" {
		d.InstanceType = LabelValue(host.Product)
	}
	for key, value := range host.Labels {
		copied := slices.ContainsFunc(m.Labels, func(pattern string) bool {
			matched, err := path.Match(pattern, key)
			return err == nil && matched
		})
		if copied && !config.ReservedLabel(key) {
			if d.Labels == nil {
				d.Labels = map[string]string{}
			}
			d.Labels[key] = value
		}
	}
	return d
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// LabelValue makes a text the value of a label: what cannot be in one becomes
// a dash, and it is cut to 63 characters. Nothing may be left.
func LabelValue(text string) string {
	const most, ends = 63, "-_."
	value := strings.Trim(notInLabels.ReplaceAllString(text, "-"), ends)
	if len(value) > most {
		value = strings.TrimRight(value[:most], ends)
	}
	return value
}

// A LabelChange brings the labels of a Node into step. The zero LabelChange
// changes nothing.
type LabelChange struct {
	Set    map[string]string
	Remove []string // sorted
	Owned  []string // sorted: the labels, besides zone, region and type, that are ours afterwards
}

// Labels tells what to change about the labels of a Node so that they say what
// its machine is. Owned are the labels that we set before: those that nobody
// speaks of any more are removed. Zone, region and type that nobody speaks of
// stay as they are.
func Labels(current map[string]string, owned []string, d Description) LabelChange {
	var c LabelChange
	set := func(key, value string) {
		if now, ok := current[key]; ok && now == value {
			return
		}
		if c.Set == nil {
			c.Set = map[string]string{}
		}
		c.Set[key] = value
	}
	for _, known := range []struct {
		keys  []string
		value string
	}{{zoneKeys, d.Zone}, {regionKeys, d.Region}, {typeKeys, d.InstanceType}} {
		for _, key := range known.keys {
			if known.value != "" {
				set(key, known.value)
			}
		}
	}
	for key, value := range d.Labels {
		set(key, value)
		c.Owned = append(c.Owned, key)
	}
	for _, key := range owned {
		_, wanted := d.Labels[key]
		if _, there := current[key]; there && !wanted && !config.ReservedLabel(key) {
			c.Remove = append(c.Remove, key)
		}
	}
	slices.Sort(c.Owned)
	slices.Sort(c.Remove)
	return c
}

// KeepAll returns the change without the removals. The labels that we set before
// stay ours.
func (c LabelChange) KeepAll(owned []string) LabelChange {
	c.Remove = nil
	c.Owned = append(slices.Clone(c.Owned), owned...)
	slices.Sort(c.Owned)
	c.Owned = slices.Compact(c.Owned)
	return c
}

// Own returns the value of zone, region and type labels that a Node has
// already, in the present spelling.
func Own(labels map[string]string) Description {
	return Description{Zone: labels[zoneKeys[0]], Region: labels[regionKeys[0]], InstanceType: labels[typeKeys[0]]}
}
