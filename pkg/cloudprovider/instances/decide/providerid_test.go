package decide

import (
	"strings"
	"testing"
)

func TestParseProviderID(t *testing.T) {
	for text, want := range map[string]ProviderID{
		"":                              {},
		"baremetal://rack1-u7":          {Form: FormOurs, ID: "rack1-u7"},
		"baremetal://a/b":               {Form: FormOurs, ID: "a/b"},
		"metal3://hosts/h/m":            {Form: FormMachine, Namespace: "hosts", Host: "h", Machine: "m"},
		"metal3://hosts/h":              {Form: FormHost, Namespace: "hosts", Host: "h"},
		"metal3://0a-1b":                {Form: FormUID, UID: "0a-1b"},
		"baremetalhost:///hosts/h":      {Form: FormOpenShift, Namespace: "hosts", Host: "h"},
		"baremetalhost:///hosts/h/0a":   {Form: FormOpenShift, Namespace: "hosts", Host: "h", UID: "0a"},
		"Metal3://hosts/h/m":            {Form: FormForeign},
		"BAREMETAL://x":                 {Form: FormForeign},
		"metal3:/hosts/h/m":             {Form: FormForeign},
		"baremetalhost://hosts/h":       {Form: FormForeign},
		"k3s://n1":                      {Form: FormForeign},
		"aws:///eu-west-1a/i-0123":      {Form: FormForeign},
		"no scheme at all":              {Form: FormForeign},
		" metal3://leading-blank/h/m":   {Form: FormForeign},
		"metal3metal3://hosts/host/m3m": {Form: FormForeign},
	} {
		got, err := ParseProviderID(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"baremetal://", "metal3://", "metal3:///", "metal3://a//b", "metal3://a/b/", "metal3:///b/c", "metal3://a/b/c/d",
		"baremetalhost:///", "baremetalhost:///a", "baremetalhost:///a/b/c/d", "baremetalhost:////b",
	} {
		if got, err := ParseProviderID(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestB159WrittenProviderIDIsExactlyThatOfCAPM3(t *testing.T) {
	h := Host{Namespace: "hosts", Name: "host-1", Consumer: Consumer{Kind: KindMachine, Namespace: "prod", Name: "m-1"}}
	if id, ok := MachineProviderID(h); !ok || id != "metal3://prod/host-1/m-1" {
		t.Errorf("got %q, %v", id, ok)
	}
	for _, c := range []Consumer{{}, {Kind: KindCluster, Namespace: "prod", Name: "m-1"}, {Kind: KindMachine, Name: "m-1"}, {Kind: KindMachine, Namespace: "prod"}} {
		h.Consumer = c
		if id, ok := MachineProviderID(h); ok {
			t.Errorf("%s: got %q", c, id)
		}
	}
}

// FuzzParseProviderID: nothing panics; what is read names nothing empty, and
// what is written can be read.
func FuzzParseProviderID(f *testing.F) {
	for _, seed := range []string{
		"", "baremetal://x", "metal3://a/b/c", "metal3://a/b", "metal3://a", "metal3:///", "baremetalhost:///a/b/c", "k3s://n", "metal3://a/b/c/d", "://", "metal3://\x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseProviderID(text)
		if err != nil {
			if id != (ProviderID{}) {
				t.Errorf("%q: an error, and %+v", text, id)
			}
			return
		}
		named := map[Form][]string{
			FormOurs:      {id.ID},
			FormMachine:   {id.Namespace, id.Host, id.Machine},
			FormHost:      {id.Namespace, id.Host},
			FormUID:       {id.UID},
			FormOpenShift: {id.Namespace, id.Host},
		}[id.Form]
		for _, part := range named {
			if part == "" || !strings.Contains(text, part) {
				t.Errorf("%q: %+v", text, id)
			}
		}
		if id.Form == FormMachine {
			again, ok := MachineProviderID(Host{Name: id.Host, Consumer: Consumer{KindMachine, id.Namespace, id.Machine}})
			if !ok || again != text {
				t.Errorf("%q is written as %q", text, again)
			}
		}
	})
}
