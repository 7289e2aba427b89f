package plan

import (
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestMayUseALinkThatIsRealOrMeant(t *testing.T) {
	by := func(interfaces ...string) config.Advertisement {
		return config.Advertisement{Layer2: &config.Layer2{Interfaces: interfaces}}
	}
	tests := []struct {
		name           string
		link           string
		advertisements []config.Advertisement
		want           bool
	}{
		{"a real link", "eth0", []config.Advertisement{by()}, true},
		{"a real link that nobody names yet", "eth0", []config.Advertisement{by("bond0")}, true},
		{"a virtual link", "cali1234", []config.Advertisement{by()}, false},
		{"a virtual link under a pattern for anything", "cali1234", []config.Advertisement{by("*")}, false},
		{"a virtual link that is named", "veth-lan", []config.Advertisement{by("eth0"), by("veth-lan")}, true},
		{"a virtual link under a pattern that means it", "ovs7", []config.Advertisement{by("ovs*")}, true},
		{"a virtual link, nothing by layer 2", "ovs7", []config.Advertisement{{}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := MayUse(config.Config{Advertisements: tt.advertisements}, tt.link); got != tt.want {
				t.Errorf("MayUse = %v", got)
			}
		})
	}
}
