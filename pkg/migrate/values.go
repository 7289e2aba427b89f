package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// addresses checks the items of a list of addresses of MetalLB. A CIDR with host bits
// means its whole network to all the products that are read here, so it
// becomes that, and is told.
func (o *object) addresses(key string) []string {
	var out []string
	if n := o.get(key); n == nil || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		o.fault(key, "the pool has no addresses")
	}
	for i, text := range o.words(key) {
		item := fmt.Sprintf("%s[%d]", key, i)
		if a, err := netip.ParseAddr(text); err == nil {
			o.note(item, "MetalLB takes no address without a length, and refuses all of its configuration for it: taken for %s/%d", a, a.BitLen())
		}
		out = append(out, o.address(item, text)...)
	}
	return out
}

// address checks one text, which may be several with commas between them.
func (o *object) address(key, text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if prefix, err := netip.ParsePrefix(item); err == nil && prefix != prefix.Masked() && config.CheckAddress(prefix.Masked().String()) == nil {
			whole := netipx.RangeOfPrefix(prefix)
			o.note(key, "%s is not the first address of its network: it means %s-%s, as in the source", item, whole.From(), whole.To())
			item = prefix.Masked().String()
		}
		if err := config.CheckAddress(item); err != nil {
			o.fault(key, "%q: %v", item, err)
			continue
		}
		out = append(out, item)
	}
	return out
}

// selectors reads a list of label selectors, of which any may match.
func (o *object) selectors(key string) []string {
	var out []string
	everything := false
	for _, s := range o.items(key) {
		text := s.selector()
		everything = everything || text == ""
		out = append(out, text)
	}
	if everything {
		return nil
	}
	return out
}

// selector reads a label selector into the text of kubectl; "" selects
// everything.
func (o *object) selector() string {
	if o == nil {
		return ""
	}
	var parts []string
	for _, key := range []string{"matchLabels", "match-labels"} {
		m := o.texts(key)
		for k, v := range m {
			parts = append(parts, k+"="+v)
		}
	}
	for _, key := range []string{"matchExpressions", "match-expressions"} {
		for _, e := range o.items(key) {
			parts = append(parts, e.requirement())
		}
	}
	o.done()
	slices.Sort(parts)
	text := strings.Join(slices.Compact(parts), ",")
	if _, err := labels.Parse(text); err != nil {
		o.fault("", "no label selector: %v", err)
	}
	return text
}

func (o *object) requirement() string {
	key, operator, values := o.text("key"), o.text("operator"), o.words("values")
	defer o.done()
	slices.Sort(values)
	list := "(" + strings.Join(values, ",") + ")"
	switch operator {
	case "In":
		return key + " in " + list
	case "NotIn":
		return key + " notin " + list
	case "Exists":
		return key
	case "DoesNotExist":
		return "!" + key
	}
	o.fault("operator", "expected In, NotIn, Exists or DoesNotExist")
	return key
}

// matches tells whether any of selectors matches a set of labels.
func matches(selectors []string, set map[string]string) bool {
	return slices.ContainsFunc(selectors, func(text string) bool {
		s, err := labels.Parse(text)
		return err == nil && s.Matches(labels.Set(set))
	})
}

// duration reads a Go duration, or whole seconds if there is no unit.
func (o *object) duration(key string) string {
	text := o.scalar(key)
	if text == "" {
		return ""
	}
	if text == strings.Trim(text, "abcdefghijklmnopqrstuvwxyzµ") {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		o.fault(key, "expected a duration such as 90s")
		return ""
	}
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

// one returns a list of one text, nil if that is empty.
func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func no() *bool { return new(bool) }
