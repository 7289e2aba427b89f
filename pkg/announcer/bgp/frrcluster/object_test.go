package frrcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrcluster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// collect does as the garbage collector: an object goes with its owner.
func (a *fakeAPI) collect(uid string) {
	if text := a.text(own); text != "" && !strings.Contains(text, fmt.Sprintf(`"name":"n1","uid":%q`, uid)) {
		a.remove(own)
	}
}

func TestANodeThatIsRegisteredAnewOwnsTheObject(t *testing.T) {
	want := []plan.Peering{peering(nil, "198.51.100.1/32")}
	for name, before := range map[string]func(*testing.T, *fakeAPI) *frrcluster.Speaker{
		"of the announcer": func(t *testing.T, api *fakeAPI) *frrcluster.Speaker {
			s := newSpeaker(t, api)
			s.Set(want)
			time.Sleep(time.Minute)
			return s
		},
		"of an announcer before": func(t *testing.T, api *fakeAPI) *frrcluster.Speaker {
			first := newSpeaker(t, api)
			first.Set(want)
			time.Sleep(time.Minute)
			first.Close()
			s := newSpeaker(t, api)
			s.Set(want)
			time.Sleep(time.Minute)
			return s
		},
		"while it was drained": func(t *testing.T, api *fakeAPI) *frrcluster.Speaker {
			s := newSpeaker(t, api)
			s.Set([]plan.Peering{peering(nil)})
			time.Sleep(time.Minute)
			s.Set(nil)
			time.Sleep(time.Minute)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				s := before(t, api)
				writes := len(api.written())
				api.register("u-9")
				s.Set(want)
				for range 100 {
					api.collect("u-9")
					time.Sleep(time.Minute)
				}
				api.waitText(t, own, `"uid":"u-9"`, "!u-1")
				if w := api.written()[writes:]; !slices.Equal(w, []string{"apply " + own}) {
					t.Errorf("wrote %v", w)
				}
				s.Close()
			})
		})
	}
}

func TestWhatHasJustBeenWrittenIsDeletedUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		api.set(func() { api.quiet = true })
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil)})
		time.Sleep(time.Second)
		api.waitText(t, own, "192.0.2.1")
		s.Set(nil)
		time.Sleep(time.Minute)
		if api.text(own) != "" {
			t.Errorf("it is left behind; wrote %v", api.written())
		}
		s.Close()
	})
}
