package decide

import (
	"fmt"
	"slices"
	"strings"
)

// Form is one of the ways in which a providerID names a machine.
type Form string

// The forms.
const (
	FormNone      Form = ""              // there is no providerID
	FormOurs      Form = "baremetal"     // baremetal://ID, which we write
	FormMachine   Form = "machine"       // metal3://NAMESPACE/HOST/METAL3MACHINE, which CAPM3 and we write
	FormHost      Form = "host"          // metal3://NAMESPACE/HOST, of 2019
	FormUID       Form = "uid"           // metal3://UID of the host, of CAPM3 before 2022
	FormOpenShift Form = "baremetalhost" // baremetalhost:///NAMESPACE/HOST or .../HOST/UID
	FormForeign   Form = "foreign"       // of another provider
)

// Schemes of the providerIDs that are ours to read.
const (
	schemeOurs      = "baremetal://"
	schemeMetal3    = "metal3://"
	schemeOpenShift = "baremetalhost:///"
)

// A ProviderID is what Node.spec.providerID says. Which fields are set depends
// on the form. It is for looking machines up: the text itself is never
// rewritten, so there is no way back from here.
type ProviderID struct {
	Form      Form
	ID        string // of FormOurs
	Namespace string
	Host      string
	Machine   string // the Metal3Machine
	UID       string // of the host
}

// ParseProviderID reads a providerID. The scheme is taken exactly as written.
// An error means that the scheme is one of ours and what follows is not.
func ParseProviderID(text string) (ProviderID, error) {
	switch {
	case text == "":
		return ProviderID{}, nil
	case strings.HasPrefix(text, schemeOurs):
		id := strings.TrimPrefix(text, schemeOurs)
		if id == "" {
			return ProviderID{}, fmt.Errorf("providerID %q names no machine", text)
		}
		return ProviderID{Form: FormOurs, ID: id}, nil
	case strings.HasPrefix(text, schemeOpenShift):
		return openShift(text)
	case strings.HasPrefix(text, schemeMetal3):
		return metal3(text)
	}
	return ProviderID{Form: FormForeign}, nil
}

func metal3(text string) (ProviderID, error) {
	parts, err := parts(text, schemeMetal3, 1, 3)
	if err != nil {
		return ProviderID{}, err
	}
	switch len(parts) {
	case 1:
		return ProviderID{Form: FormUID, UID: parts[0]}, nil
	case 2:
		return ProviderID{Form: FormHost, Namespace: parts[0], Host: parts[1]}, nil
	}
	return ProviderID{Form: FormMachine, Namespace: parts[0], Host: parts[1], Machine: parts[2]}, nil
}

func openShift(text string) (ProviderID, error) {
	parts, err := parts(text, schemeOpenShift, 2, 3)
	if err != nil {
		return ProviderID{}, err
	}
	id := ProviderID{Form: FormOpenShift, Namespace: parts[0], Host: parts[1]}
	if len(parts) == 3 {
		id.UID = parts[2]
	}
	return id, nil
}

// parts splits what follows the scheme, of which no part may be empty.
func parts(text, scheme string, least, most int) ([]string, error) {
	parts := strings.Split(strings.TrimPrefix(text, scheme), "/")
	if len(parts) < least || len(parts) > most || slices.Contains(parts, "") {
		return nil, fmt.Errorf("providerID %q: after %s come %d to %d parts, none of them empty", text, scheme, least, most)
	}
	return parts, nil
}

// OwnProviderID is the providerID of a machine that nothing else names.
func OwnProviderID(node string) string { return schemeOurs + node }

// MachineProviderID is the providerID of the machine of a host, exactly as
// CAPM3 writes it. A host without a Metal3Machine has none yet.
func MachineProviderID(h Host) (id string, ok bool) {
	if h.Consumer.Kind != KindMachine || h.Consumer.Namespace == "" || h.Consumer.Name == "" {
		return "", false
	}
	return schemeMetal3 + h.Consumer.Namespace + "/" + h.Name + "/" + h.Consumer.Name, true
}
