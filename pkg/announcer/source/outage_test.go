package source

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestB171BrokenWatchesMissNothing(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	for i := range 6 {
		name := fmt.Sprint("s", i)
		r.api.put(balancer("web", name, "192.0.2.50"))
		r.api.cutWatches()
		r.has(t, "web/"+name+"[192.0.2.50][] web/shop[192.0.2.100][n2]", services)
		r.api.remove(balancer("web", name))
		if i%2 == 0 {
			r.api.forget() // what happened before cannot be watched any more
		}
		r.api.cutWatches()
		r.has(t, "web/shop[192.0.2.100][n2]", services)
	}
}

func TestOutageOfTheAPIServerTakesNothingAway(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	kicks := r.kicks.Load()
	r.api.stop()
	eventually(t, "the outage is noticed", func() string {
		if down := r.Unreachable(); len(down) < 5 {
			return fmt.Sprint(down)
		}
		return ""
	})
	r.has(t, "web/shop[192.0.2.100][n2]", services)
	if got := r.kicks.Load(); got != kicks {
		t.Errorf("the outage kicked %d times", got-kicks)
	}
	time.Sleep(3 * time.Second) // several attempts of each reflector
	if got := r.log.count("cannot read"); got != 5 {
		t.Errorf("the outage was logged %d times, want once for each of 5 kinds", got)
	}
	r.api.remove(balancer("web", "shop"))
	r.api.start()
	r.has(t, "", services)
	eventually(t, "the end of the outage is noticed", func() string { return strings.Join(r.Unreachable(), " ") })
	eventually(t, "the end of the outage is logged once for each of 5 kinds", func() string {
		if got := r.log.count("can read again"); got != 5 { // the last line follows the change of state
			return fmt.Sprint(got)
		}
		return ""
	})
}

func TestB168MissingRightIsNamed(t *testing.T) {
	api := populated(t)
	api.forbid("endpointslices", true)
	r := run(t, api, nil)
	eventually(t, "the missing right is named", func() string {
		err := r.Known()
		if err == nil {
			t.Fatal("known without EndpointSlices")
		}
		if strings.HasPrefix(err.Error(), "waiting for EndpointSlices (") && strings.Contains(err.Error(), "forbidden") {
			return ""
		}
		return err.Error()
	})
	api.forbid("endpointslices", false)
	r.known(t)

	// Taking it away later takes nothing else away.
	api.forbid("endpointslices", true)
	api.cutWatches()
	api.put(balancer("web", "later", "192.0.2.101"))
	r.has(t, "web/later[192.0.2.101][] web/shop[192.0.2.100][n2]", services)
}
