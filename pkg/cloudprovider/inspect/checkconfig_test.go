package inspect

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/fakeapi"
)

// here are the commands as ccm-baremetal has them.
var here = Options{Program: "ccm-baremetal", Cluster: func() Cluster { return &Connection{} }}

// result is what a run of check-config leaves behind.
type result struct {
	code    int
	summary string
	stdout  string
}

func checkConfigRun(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := NewCheckConfigCommand(here)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err := cmd.Execute()
	r := result{code: ExitCode(err), stdout: stdout.String()}
	if err != nil {
		r.summary = err.Error()
	}
	if stderr.Len() > 0 {
		t.Errorf("printed by itself on stderr: %s", stderr.String())
	}
	return r
}

// sizes finds the sizes of the pool lan in a table.
var sizes = regexp.MustCompile(`(?m)^  lan +active +true +0 +(\S+) +(\S+)$`)

func TestB006PoolItemsThatPeopleWrite(t *testing.T) {
	for name, test := range map[string]struct {
		pool string
		code int
		want string // of a refused document the fault, of an accepted one the IPv4 size
	}{
		"bare address":     {"addresses: [198.51.100.254]", 0, "1"},
		"blanks in range":  {"addresses: ['198.51.100.20 - 198.51.100.25']", 0, "6"},
		"dot for the dash": {"addresses: [198.51.100.20.198.51.100.25]", 1, `5: pools[0] (lan).addresses[0]: "198.51.100.20.198.51.100.25": two addresses without a dash between them: 198.51.100.20-198.51.100.25; accepted are addresses, CIDRs and ranges of IPv4 or IPv6, such as 192.0.2.10, 192.0.2.0/28 or 192.0.2.10-192.0.2.20`},
		"cidr as the key":  {"cidr: [198.51.100.0/24]", 1, `5: pools[0] (lan).cidr: unknown key "cidr"; did you mean "addresses"?`},
	} {
		t.Run(name, func(t *testing.T) {
			path := fakeapi.File(t, "config.yaml", fakeapi.Head+"pools:\n- name: lan\n  "+test.pool+"\n")
			r := checkConfigRun(t, "", path)
			checkPool(t, r, path, test.code, test.want, "0")
		})
	}
}

func TestB007ReversedRangesAreRefusedAndSingleOnesHaveOneAddress(t *testing.T) {
	for item, test := range map[string]struct {
		code      int
		want, six string
	}{
		"198.51.100.63-198.51.100.32":   {1, "reversed, the first address is above the last: write 198.51.100.32-198.51.100.63", ""},
		"2001:db8:51::f-2001:db8:51::1": {1, "reversed, the first address is above the last: write 2001:db8:51::1-2001:db8:51::f", ""},
		"198.51.100.40-2001:db8:51::1":  {1, "one end is IPv4, the other IPv6", ""},
		"198.51.100.40-198.51.100.40":   {0, "1", "0"},
		"2001:db8:51::f-2001:db8:51::f": {0, "0", "1"},
	} {
		t.Run(item, func(t *testing.T) {
			path := fakeapi.File(t, "config.yaml", fakeapi.Head+"pools:\n- name: lan\n  addresses: [192.0.2.1, '"+item+"']\n")
			if test.code == 0 {
				path = fakeapi.File(t, "config.yaml", fakeapi.Head+"pools:\n- name: lan\n  addresses: ['"+item+"']\n")
			}
			want := test.want
			if test.code == 1 {
				want = `5: pools[0] (lan).addresses[1]: "` + item + `": ` + want +
					"; accepted are addresses, CIDRs and ranges of IPv4 or IPv6, such as 192.0.2.10, 192.0.2.0/28 or 192.0.2.10-192.0.2.20"
			}
			checkPool(t, checkConfigRun(t, "", path), path, test.code, want, test.six)
		})
	}
}

// checkPool compares a result with the only fault, or with the sizes of the
// pool lan.
func checkPool(t *testing.T, r result, path string, code int, want, six string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.stdout)
	}
	if code != 0 {
		if got := strings.TrimSuffix(r.stdout, "\n"); got != path+":"+want {
			t.Errorf("got  %s\nwant %s:%s", got, path, want)
		}
		if r.summary != "faults: 1, in 1 of 1 files" {
			t.Errorf("summary %q", r.summary)
		}
		return
	}
	got := sizes.FindStringSubmatch(r.stdout)
	if diff := cmp.Diff([]string{want, six}, got[min(1, len(got)):]); diff != "" {
		t.Errorf("sizes: %s in\n%s", diff, r.stdout)
	}
}

func TestCheckConfigShowsPoolsAdvertisementsAndWarnings(t *testing.T) {
	document := fakeapi.Head + `pools:
- name: lan
  addresses: [192.0.2.0/28, "2001:db8::/120"]
- name: large
  priority: -5
  autoAssign: false
  addresses: ["2001:db8:1::/48"]
- name: gone
  state: disabled
  addresses: [198.51.100.1]
advertisements:
- name: both
  pools: [lan, large]
  layer2: {}
  bgp: {}
- {name: tor, pools: [lan], bgp: {peers: [a]}}
bgp: {localASN: 64500, peers: [{name: a, address: 192.0.2.254, asn: 64501}, {name: b, address: "fe80::1%eth0", asn: external}]}
`
	want := `-: no faults, hash HASH
  POOL   STATE     AUTO   PRIORITY  IPV4  IPV6
  lan    active    true   0         16    256
  large  active    false  -5        0     >= 2^63
  gone   disabled  true   0         1     0
  ADVERTISEMENT  POOLS       BY
  both           lan, large  layer 2, BGP
  tor            lan         BGP
  PEER  ADDRESS       PORT  AS
  a     192.0.2.254   179   64501
  b     fe80::1%eth0  179   any
-: warning: pools[2] (gone): is disabled: nothing is given out, not even on request
-: warning: pools[2] (gone): no advertisement selects this pool: its addresses are given out and nobody announces them
`
	r := checkConfigRun(t, document, "-")
	got := regexp.MustCompile(`hash [0-9a-f]{12}\n`).ReplaceAllString(r.stdout, "hash HASH\n")
	if diff := cmp.Diff(want, got); diff != "" || r.code != 0 {
		t.Errorf("exit code %d, -want +got\n%s", r.code, diff)
	}
}

func TestCheckConfigUnderstandsConfigMapsWithTheLinesOfTheFile(t *testing.T) {
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ccm-baremetal}\ndata:\n  config.yaml: |\n    " +
		strings.ReplaceAll(fakeapi.Head, "\n", "\n    ") + "pools:\n    - addresses: [192.0.2.1]\n      adresses: []\n"
	r := checkConfigRun(t, manifest, "-")
	want := "-:10: pools[0].adresses: unknown key \"adresses\"; did you mean \"addresses\"?\n"
	if r.stdout != want || r.code != 1 {
		t.Errorf("exit code %d\ngot  %swant %s", r.code, r.stdout, want)
	}
	r = checkConfigRun(t, "apiVersion: v1\nkind: ConfigMap\ndata: {config: a}\n", "-")
	want = "-:1: the ConfigMap has no data under the key config.yaml, where the document would be; its keys are: \"config\"\n"
	if r.stdout != want || r.code != 1 {
		t.Errorf("exit code %d\ngot  %swant %s", r.code, r.stdout, want)
	}
}

func TestCheckConfigExitCodes(t *testing.T) {
	good := fakeapi.File(t, "good.yaml", config.Smallest)
	bad := fakeapi.File(t, "bad.yaml", "pools: []\n")
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for name, test := range map[string]struct {
		args    []string
		code    int
		summary string
	}{
		"good":                {[]string{good}, 0, ""},
		"good and bad":        {[]string{good, bad}, 1, "faults: 3, in 1 of 2 files"},
		"missing":             {[]string{missing}, 2, "files that cannot be read: 1 of 1"},
		"missing and bad":     {[]string{bad, missing, good}, 2, "files that cannot be read: 1 of 3"},
		"a directory":         {[]string{t.TempDir()}, 2, "files that cannot be read: 1 of 1"},
		"no file":             {nil, 2, "which FILE? - is the standard input; see --help"},
		"unknown flag":        {[]string{"--strict", good}, 2, "unknown flag: --strict"},
		"unknown output":      {[]string{"-o", "yaml", good}, 2, `unknown output "yaml": text or json`},
		"good as JSON":        {[]string{"-o", "json", good}, 0, ""},
		"bad as JSON":         {[]string{"-o", "json", bad}, 1, "faults: 3, in 1 of 1 files"},
		"schema without file": {[]string{"--schema"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := checkConfigRun(t, "", test.args...)
			if r.code != test.code || r.summary != test.summary {
				t.Errorf("got %d, %q, want %d, %q", r.code, r.summary, test.code, test.summary)
			}
			if test.code != 2 && r.stdout == "" {
				t.Error("nothing is printed")
			}
		})
	}
}

func TestCheckConfigJSONHasAStableShape(t *testing.T) {
	good := fakeapi.File(t, "good.yaml", config.Smallest+"- {name: dmz, addresses: ['2001:db8::/64'], state: draining}\n")
	r := checkConfigRun(t, "pools: 1\n", "-o", "json", good, "-", "/missing")
	var out struct{ Files []map[string]any }
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || len(out.Files) != 3 || r.code != 2 {
		t.Fatalf("exit code %d, %v in %s", r.code, err, r.stdout)
	}
	c, err := config.Load([]byte(config.Smallest + "- {name: dmz, addresses: ['2001:db8::/64'], state: draining}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{
		"file": good, "ok": true, "hash": c.Hash, "faults": []any{},
		"warnings": []any{map[string]any{"path": "pools[1] (dmz)", "line": 0., "message": "is draining: nothing new is given out"}},
		"pools": []any{
			map[string]any{
				"name": "default", "state": "active", "autoAssign": true, "priority": 0., "ipv4": 51., "ipv6": 0.,
				"ranges": []any{"192.0.2.100-192.0.2.150"},
			},
			map[string]any{
				"name": "dmz", "state": "draining", "autoAssign": true, "priority": 0., "ipv4": 0., "ipv6": 9223372036854775807.,
				"ranges": []any{"2001:db8::-2001:db8::ffff:ffff:ffff:ffff"},
			},
		},
		"advertisements": []any{map[string]any{"name": "default", "pools": []any{}, "layer2": true, "bgp": false}},
		"peers":          []any{},
	}, {
		"file": "-", "ok": false, "hash": "", "warnings": []any{}, "pools": []any{}, "advertisements": []any{}, "peers": []any{},
		"faults": []any{
			map[string]any{"path": "apiVersion", "line": 1., "message": "is missing; for example apiVersion: " + config.APIVersion},
			map[string]any{"path": "kind", "line": 1., "message": "is missing; for example kind: CloudConfig"},
			map[string]any{"path": "pools", "line": 1., "message": "expected a list of pools, got the number 1; for example pools: [{addresses: [192.0.2.100-192.0.2.150]}]"},
		},
	}, {
		"file": "/missing", "ok": false, "hash": "", "warnings": []any{}, "pools": []any{}, "advertisements": []any{}, "peers": []any{},
		"faults": []any{map[string]any{"path": "", "line": 0., "message": "open /missing: no such file or directory"}},
	}}
	if diff := cmp.Diff(want, out.Files); diff != "" {
		t.Error(diff)
	}
}

func TestCheckConfigPrintsTheSchema(t *testing.T) {
	if r := checkConfigRun(t, "", "--schema"); r.stdout != string(config.Schema()) {
		t.Errorf("got %s", r.stdout)
	}
}

func TestCheckConfigHelpTeaches(t *testing.T) {
	r := checkConfigRun(t, "", "--help")
	for _, part := range []string{"Exit code:", "Examples:", "kubectl -n kube-system get configmap", "-o json", "FILE:LINE: path:"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("no %q in\n%s", part, r.stdout)
		}
	}
}
