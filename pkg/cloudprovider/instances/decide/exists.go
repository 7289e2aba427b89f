package decide

import (
	"fmt"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Verdict is what is known about the existence of a machine.
type Verdict string

// The verdicts.
const (
	Exists  Verdict = "exists"  // or nothing speaks against it
	Gone    Verdict = "gone"    // there is evidence that it is gone
	Unknown Verdict = "unknown" // whoever knows cannot be asked, or must not be believed
)

// Reason is why a verdict is what it is.
type Reason string

// The reasons. Changing one is an API change.
const (
	ReasonStatic         Reason = "Static"              // nothing but the document could say that it is gone
	ReasonForeign        Reason = "ForeignProviderID"   // the Node is another provider's
	ReasonInUse          Reason = "HostInUse"           // the host is in use by the machine
	ReasonUnsettled      Reason = "HostUnsettled"       // the host is on its way somewhere, as after a move of the management cluster
	ReasonMissing        Reason = "HostMissing"         // there is no such host
	ReasonDecommissioned Reason = "Decommissioned"      // the document says so
	ReasonDeprovisioned  Reason = "HostDeprovisioned"   // the host is being wiped, or waits to be used again
	ReasonTaken          Reason = "HostTaken"           // the host is in use by another machine
	ReasonFrozen         Reason = "HostFrozen"          // the host is paused, detached or being moved
	ReasonMismatch       Reason = "HostMismatch"        // the host is not the one that the providerID means
	ReasonMalformed      Reason = "ProviderIDMalformed" // the providerID cannot be read
	ReasonUnavailable    Reason = "SourceUnavailable"   // the management cluster cannot be asked
)

// An Answer is a verdict and why it is that one.
type Answer struct {
	Verdict Verdict
	Reason  Reason
	Message string
}

// Existence tells whether the machine of a providerID exists, by its host; nil
// means that there is no such host. The providerID is in one of the forms of
// Metal3, and whoever was asked for the host knows all of them.
func Existence(id ProviderID, host *Host, missing config.OnMissingHost) Answer {
	switch {
	case host == nil && id.Form == FormUID:
		return Answer{Unknown, ReasonMismatch, "no host has the UID " + id.UID + ", which changes when hosts move between management clusters"}
	case host == nil && missing == config.MissingDelete:
		return Answer{Gone, ReasonMissing, fmt.Sprintf("there is no BareMetalHost %s/%s", id.Namespace, id.Host)}
	case host == nil:
		return Answer{Exists, ReasonMissing, fmt.Sprintf("there is no BareMetalHost %s/%s, which says nothing about the machine", id.Namespace, id.Host)}
	}
	name := "BareMetalHost " + host.Namespace + "/" + host.Name
	switch {
	case id.UID != "" && id.UID != host.UID:
		return Answer{Unknown, ReasonMismatch, fmt.Sprintf("%s has the UID %s, not %s", name, host.UID, id.UID)}
	case host.Frozen != "":
		return Answer{Unknown, ReasonFrozen, name + " is " + host.Frozen}
	case id.Machine != "" && !usedBy(id, host.Consumer):
		return strangers(name, host)
	}
	return byState(name, host)
}

func usedBy(id ProviderID, c Consumer) bool {
	return c == Consumer{KindMachine, id.Namespace, id.Machine} || c == Consumer{}
}

// strangers answers for a host that is in use by something else.
func strangers(name string, host *Host) Answer {
	message := fmt.Sprintf("%s is in use by %s", name, host.Consumer)
	if host.Consumer.Kind == KindMachine || host.Consumer.Kind == KindCluster {
		return Answer{Gone, ReasonTaken, message}
	}
	return Answer{Exists, ReasonUnsettled, message}
}

// byState answers by what the host is doing. A host that nobody uses and that
// runs nevertheless is one that is about to be wiped, or to be adopted.
func byState(name string, host *Host) Answer {
	message := fmt.Sprintf("%s, in use by %s, is %s", name, host.Consumer, host.State)
	switch host.State {
	case "provisioned", "externally provisioned", "provisioning", "servicing":
		return Answer{Exists, ReasonInUse, message}
	case "":
		return Answer{Exists, ReasonUnsettled, name + " has no state yet"}
	case "unmanaged", "registering", "match profile", "inspecting", "preparing":
		return Answer{Exists, ReasonUnsettled, message}
	case "deprovisioning", "powering off before delete", "deleting":
		return Answer{Gone, ReasonDeprovisioned, message}
	case "available", "ready":
		if host.Consumer == (Consumer{}) {
			return Answer{Gone, ReasonDeprovisioned, message}
		}
		return Answer{Exists, ReasonUnsettled, message}
	}
	return Answer{Unknown, ReasonUnsettled, message + ", which is not known here"}
}

// Off tells whether a host's machine is off, as far as that can be believed;
// why says what speaks against it if not.
func Off(host Host) (off bool, why string) {
	switch {
	case host.Frozen != "":
		return false, "the host is " + host.Frozen
	case host.State != "provisioned" && host.State != "externally provisioned":
		return false, "the host is " + host.State
	case host.Operational != "OK" && host.Operational != "servicing":
		return false, "the operational status of the host is " + host.Operational
	case !host.Registered:
		return false, "the host is not registered"
	case host.PoweredOn:
		return false, "the host is powered on"
	}
	return true, ""
}
