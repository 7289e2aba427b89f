package instances

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// InstanceExists is false if the Node of a machine that is gone is to be
// deleted: the framework asks about Nodes that are not Ready, and does so at
// once. That takes the configuration's leave, evidence that has lasted, and a
// last look at the hosts themselves, for which it waits.
func (i *Instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	c, err := i.inForce()
	if err != nil {
		return false, err
	}
	answer := i.existence(c, node)
	i.counts.existence(answer.Verdict)
	if answer.Verdict == decide.Gone {
		return i.suspect(ctx, c.Nodes, node, answer)
	}
	return i.clear(node, answer)
}

// clear answers for a Node that nothing stands against, for now.
func (i *Instances) clear(node *v1.Node, answer decide.Answer) (exists bool, err error) {
	i.acquit(node)
	if answer.Verdict == decide.Exists {
		return true, nil
	}
	return false, fmt.Errorf("node %s: whether its machine exists is not known: %s: %s", node.Name, answer.Reason, answer.Message)
}

// existence tells what is known about the existence of a Node's machine. A
// Node that has no providerID has nothing by which its machine could be gone.
func (i *Instances) existence(c config.Config, node *v1.Node) decide.Answer {
	m, err := i.machineOf(c, node)
	switch {
	case m.entry != nil && m.entry.Decommissioned:
		return decide.Answer{Verdict: decide.Gone, Reason: decide.ReasonDecommissioned, Message: "the inventory says that the machine is decommissioned"}
	case err != nil:
		return decide.Answer{Verdict: decide.Unknown, Reason: decide.ReasonMalformed, Message: err.Error()}
	case m.foreign:
		return decide.Answer{Verdict: decide.Exists, Reason: decide.ReasonForeign, Message: m.text + " is another provider's"}
	case !m.hosted(c, node):
		return decide.Answer{Verdict: decide.Exists, Reason: decide.ReasonStatic, Message: "nothing says that the machine is gone"}
	case m.trouble != nil:
		return decide.Answer{Verdict: decide.Unknown, Reason: decide.ReasonUnavailable, Message: m.trouble.Error()}
	}
	return decide.Existence(m.id, m.host, c.Nodes.Metal3.OnMissingHost)
}

// hosted tells whether it is for a host to say something about the machine of
// a Node: its own providerID must name it.
func (m machine) hosted(c config.Config, node *v1.Node) bool {
	if c.Nodes.Source != config.SourceMetal3 || node.Spec.ProviderID == "" {
		return false
	}
	return m.id.Form != decide.FormOurs && m.id.Form != decide.FormForeign
}

// acquit forgets that the machine of a Node seemed to be gone.
func (i *Instances) acquit(node *v1.Node) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.memory(node)
	m.gone, m.held = decide.Suspicion{}, false
	delete(m.told, reasonPossibleDeletion)
	delete(m.told, reasonDeletionHeld)
}

// suspect deals with a Node whose machine seems to be gone. It answers that it
// exists until all that a deletion takes is there.
func (i *Instances) suspect(ctx context.Context, c config.Nodes, node *v1.Node, answer decide.Answer) (exists bool, err error) {
	now := time.Now()
	facts, all := factsOf(node), i.all()
	i.mu.Lock()
	m := i.memory(node)
	m.gone = m.gone.Again(now, i.hosts.epoch())
	confirmed, _ := m.gone.Confirmed(facts, now, c.GoneAfter, c.GoneSightings)
	allowed, why := false, ""
	if confirmed && c.DeleteGone {
		allowed, why = i.breaker.Allow(facts, all, now)
		m.held = !allowed
	}
	i.mu.Unlock()

	i.tell(node, v1.EventTypeWarning, reasonPossibleDeletion, deletionMessage(c, answer))
	switch {
	case !confirmed || !c.DeleteGone:
		return true, nil
	case !allowed:
		i.tell(node, v1.EventTypeWarning, reasonDeletionHeld, "this Node is not deleted although its machine is gone: "+why)
		return false, fmt.Errorf("node %s: its machine is gone, but the Node is kept: %s", node.Name, why)
	}
	if answer = i.lookAgain(ctx, c.Metal3, node, answer); answer.Verdict != decide.Gone {
		return i.clear(node, answer)
	}
	i.log.Warn("node to be deleted: its machine is gone", "node", node.Name, "reason", string(answer.Reason), "evidence", answer.Message)
	return false, nil
}

// lookAgain asks the management cluster itself before a Node is deleted: what
// is kept of it may be from before an outage that nobody has noticed yet. The
// word of the inventory needs no second look.
func (i *Instances) lookAgain(ctx context.Context, c config.Metal3, node *v1.Node, seen decide.Answer) decide.Answer {
	if seen.Reason == decide.ReasonDecommissioned {
		return seen
	}
	id, err := decide.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return decide.Answer{Verdict: decide.Unknown, Reason: decide.ReasonMalformed, Message: err.Error()}
	}
	now, err := i.hosts.look(ctx, c)
	if err != nil {
		return decide.Answer{Verdict: decide.Unknown, Reason: decide.ReasonUnavailable, Message: err.Error()}
	}
	return decide.Existence(id, now.named(id), c.OnMissingHost)
}

func deletionMessage(c config.Nodes, answer decide.Answer) string {
	message := fmt.Sprintf("the machine seems to be gone: %s: %s; ", answer.Reason, answer.Message)
	if !c.DeleteGone {
		return message + "the Node is kept, because nodes.deleteGone is false"
	}
	return message + fmt.Sprintf("if that lasts for %s and the Node is not Ready, it will be deleted", c.GoneAfter)
}

// InstanceShutdown tells whether the machine of a Node is off. Only a host can
// say so, and for long enough.
func (i *Instances) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	c, err := i.inForce()
	if err != nil {
		return false, err
	}
	m, err := i.machineOf(c, node)
	switch {
	case err != nil:
		return false, fmt.Errorf("node %s: %w", node.Name, err)
	case m.foreign || !m.hosted(c, node):
		return false, nil
	case m.trouble != nil:
		return false, fmt.Errorf("node %s: whether its machine is off is not known: %w", node.Name, m.trouble)
	}
	off := false
	if m.host != nil && decide.Existence(m.id, m.host, c.Nodes.Metal3.OnMissingHost).Verdict == decide.Exists {
		off, _ = decide.Off(*m.host)
	}
	return i.offLongEnough(node, off, c.Nodes.OffAfter), nil
}

// offLongEnough remembers since when a machine has been seen to be off, and
// tells whether that was long enough ago.
func (i *Instances) offLongEnough(node *v1.Node, off bool, after time.Duration) bool {
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.memory(node)
	if !off {
		m.off = decide.Suspicion{}
		return false
	}
	m.off = m.off.Again(now, i.hosts.epoch())
	return now.Sub(m.off.Since) >= after
}
