package instances

import (
	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/eventtext"
)

// Reasons of events on Nodes. Changing one is an API change.
const (
	reasonNotInitialized   = "NodeNotInitialized"   // why the taint of the cloud provider stays
	reasonPossibleDeletion = "PossibleNodeDeletion" // the machine seems to be gone
	reasonDeletionHeld     = "NodeDeletionHeld"     // it is gone, and the Node is kept to be on the safe side
	reasonLabelsRefused    = "NodeLabelsNotWritten" // the API server refused them
)

// tell raises an event on a Node, unless the last one of that reason said the
// same.
func (i *Instances) tell(node *v1.Node, kind, reason, message string) {
	message = eventtext.Line(message)
	i.mu.Lock()
	m := i.memory(node)
	news := m.told[reason] != message
	m.told[reason] = message
	i.mu.Unlock()
	if !news {
		return
	}
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	i.events.Event(ref, kind, reason, message)
	i.log.Warn("about a node", "node", node.Name, "reason", reason, "message", message)
}
