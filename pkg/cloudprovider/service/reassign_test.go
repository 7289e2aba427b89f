package service

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// movers is a document whose pool has been cut down to nothing that is in use,
// with another one to go to.
func movers(interval string) string {
	return "services: {reassignInterval: " + interval + "}\npools:\n" +
		"- {name: public, addresses: [192.0.2.99], autoAssign: false, onMismatch: reassign}\n" +
		"- {name: new, addresses: [198.51.100.0/28]}\n"
}

func TestReassignMovesOneServiceAfterTheOther(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(4))
	for i := range 4 {
		api.create(lb(fmt.Sprintf("s%d", i)))
		api.awaitAddress(t, fmt.Sprintf("web/s%d", i))
	}
	moved := func() (n int) {
		for i := range 4 {
			if api.address(t, fmt.Sprintf("web/s%d", i)) == fmt.Sprintf("198.51.100.%d", i) {
				n++
			}
		}
		return n
	}
	l.Apply(load(t, movers("1h")))
	eventually(t, "the first moves", func() bool { return moved() == 1 })
	l.settle(t)
	if moved() != 1 || l.turns.waiting(time.Now()) != 3 {
		t.Errorf("%d have moved, %d wait for their turn", moved(), l.turns.waiting(time.Now()))
	}
	for i := 1; i < 4; i++ {
		if got := api.reason(t, fmt.Sprintf("web/s%d", i)); got != "Allocated" {
			t.Errorf("s%d, which waits for its turn, has reason %s", i, got)
		}
	}
	l.stop()
	lead(t, api, movers("0s")) // knows from the conditions that they have to move
	eventually(t, "all have moved", func() bool { return moved() == 4 })
}

func TestReassignDoesNotKeepAServiceOnAnAddressThatIsANodes(t *testing.T) {
	node := func(name, address string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}}}
	}
	api := newAPIServer(node("n0", "192.0.2.10"), node("n1", "192.0.2.11"), node("n2", "192.0.2.12"))
	for i := range 3 {
		api.create(lb(fmt.Sprintf("s%d", i), given(time.Hour, fmt.Sprintf("192.0.2.%d", 10+i))))
	}
	lead(t, api, "services: {reassignInterval: 1h}\npools:\n- {name: public, addresses: [192.0.2.10-192.0.2.19], onMismatch: reassign}\n")
	for i := range 3 {
		key := fmt.Sprintf("web/s%d", i)
		eventually(t, key+" has moved", func() bool { return api.address(t, key) == fmt.Sprintf("192.0.2.%d", 13+i) })
	}
}
