// Package inspect has the commands that look at a cluster and at documents, and
// change nothing: check-config and allocations. They have a command line here
// so that every program of ours can offer them.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// The exit codes of check-config. Changing one is an API change.
const (
	exitFaults     = 1 // a document has faults
	ExitUnreadable = 2 // a file or the cluster cannot be read, or the command line makes no sense
	exitRefused    = 3 // a document is right in itself, and the controller of the cluster would refuse it
)

// ExitError is an error that ends the process with a code of its own.
type ExitError struct {
	Code int
	Err  error
}

// Error says what went wrong.
func (e ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e ExitError) Unwrap() error { return e.Err }

// ExitCode returns the code with which the process ends after err.
func ExitCode(err error) int {
	var coded ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code
	default:
		return 1
	}
}

const checkConfigHelp = `Check configuration documents, with --cluster also what they would do to Services.

Each FILE is a document, or a manifest with a ConfigMap that holds one under the
key config.yaml; - is the standard input. All faults are shown at once, one
a line:

  FILE:LINE: path: what is wrong and what would be right

A document without faults is followed by its pools with the number of addresses
in each family, its advertisements and peers, and warnings about what is allowed and yet
may not be meant. The hash is that which every process reports for the document
that it uses.

Without --cluster nothing is read from a cluster. With it, each document is
compared with the one in force there, and it is said which Services would lose
their address, get another one, or keep one that no Node is selected to announce;
whether the controller would refuse the document because it changes too much (more
than 20 %, and more than 5, of the addresses in use, without
services.allowMassChange); and which addresses would be announced by no Node,
newly or still. Nothing is ever written.

Exit code: 0 if all documents are right, 1 if one has faults, 2 if a file or the
cluster cannot be read or the command line makes no sense, 3 if the controller
would refuse one. Of several the gravest: 2, then 1, then 3.

With -o json the result is one object:

  {"files": [{
    "file": "config.yaml", "ok": true, "hash": "5d0b...",
    "faults":   [{"path": "pools[0] (lan).addresses[1]", "line": 5, "message": "..."}],
    "warnings": [{"path": "pools[1] (dmz)", "line": 0, "message": "..."}],
    "pools": [{"name": "lan", "state": "active", "autoAssign": true, "priority": 0,
               "ipv4": 51, "ipv6": 0, "ranges": ["192.0.2.100-192.0.2.150"]}],
    "advertisements": [{"name": "default", "pools": [], "layer2": true, "bgp": false}],
    "peers": [{"name": "tor-a", "address": "192.0.2.1", "port": 179, "asn": 65001}],
    "impact": {"inForce": "9c1f...", "inUse": 26, "affected": 1, "refused": "",
      "effects": [{"service": "shop/web", "address": "192.0.2.100", "fate": "Moved",
                   "to": "192.0.2.7", "message": "..."}],
      "silent":  [{"service": "shop/db", "address": "192.0.2.9", "fate": "Unannounced",
                   "to": "", "message": "..."}]}}]}

Lists are never null; a document with faults has neither pools nor
advertisements nor peers; no pools in an advertisement means all; line 0 means not known;
numbers of addresses stop at 9223372036854775807. A file that cannot be read
has the reason as its only fault. There is an impact with --cluster only, for a
document without faults; its fates are Lost, Moved and Unannounced; inUse and
affected count addresses; refused is why the controller would refuse the document;
inForce is "" if there is no document in force, and then the Services themselves
say what they were given.`

const checkConfigExamples = `  # a file in a repository, as a step of a pipeline
  PROGRAM check-config deploy/ccm-baremetal/configmap.yaml

  # what an edit would do to the cluster, before it is applied
  PROGRAM check-config --cluster deploy/ccm-baremetal/configmap.yaml

  # what is in the cluster now
  kubectl -n kube-system get configmap ccm-baremetal -o yaml | PROGRAM check-config -

  # only the faults, for a tool
  PROGRAM check-config -o json config.yaml | jq -r '.files[].faults[].message'

  # completion and checks while typing, in editors that know JSON Schema
  PROGRAM check-config --schema > ccm-baremetal.schema.json`

// NewCheckConfigCommand returns the command check-config. Its error carries
// the exit code (see ExitCode) and the summary; the faults are printed.
func NewCheckConfigCommand(o Options) *cobra.Command {
	reach := o.Cluster()
	var output, inForce string
	var schema, cluster bool
	cmd := &cobra.Command{
		Use:     "check-config FILE...",
		Short:   "Check configuration documents, and what they would do to a cluster",
		Long:    o.worded(checkConfigHelp),
		Example: o.worded(checkConfigExamples),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !schema {
				return ExitError{ExitUnreadable, errors.New("which FILE? - is the standard input; see --help")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(config.Schema())
				return err
			}
			show, known := map[string]func(io.Writer, []checkedFile) error{"text": printText, "json": printJSON}[output]
			if !known {
				return ExitError{ExitUnreadable, fmt.Errorf("unknown output %q: text or json", output)}
			}
			judge := func(*checkedFile) {}
			if cluster {
				j, err := newJudge(cmd.Context(), reach, inForce)
				if err != nil {
					return ExitError{ExitUnreadable, err}
				}
				judge = j.judge
			}
			return checkConfig(cmd, args, judge, show)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of the document and check nothing")
	cmd.Flags().BoolVar(&cluster, "cluster", false, "say what each document would do to the Services of a cluster")
	cmd.Flags().StringVar(&inForce, "cloud-config", "", "with --cluster: the document in force is this file, as for a controller with that flag")
	reach.AddFlags(cmd.Flags())
	return Quiet(cmd)
}

// checkedFile is what is found out about one file.
type checkedFile struct {
	File           string                 `json:"file"`
	OK             bool                   `json:"ok"`
	Hash           string                 `json:"hash"`
	Faults         []config.Error         `json:"faults"`
	Warnings       []config.Error         `json:"warnings"`
	Pools          []checkedPool          `json:"pools"`
	Advertisements []checkedAdvertisement `json:"advertisements"`
	Peers          []checkedPeer          `json:"peers"`
	Impact         *impact                `json:"impact,omitempty"` // nil: not asked for, or there are faults

	unreadable bool
	config     config.Config // if OK
}

type checkedPool struct {
	Name       string           `json:"name"`
	State      config.PoolState `json:"state"`
	AutoAssign bool             `json:"autoAssign"`
	Priority   int              `json:"priority"`
	IPv4       uint64           `json:"ipv4"`
	IPv6       uint64           `json:"ipv6"`
	Ranges     []string         `json:"ranges"`
}

type checkedAdvertisement struct {
	Name   string   `json:"name"`
	Pools  []string `json:"pools"`
	Layer2 bool     `json:"layer2"`
	BGP    bool     `json:"bgp"`
}

// by says how an advertisement announces.
func (a checkedAdvertisement) by() string {
	switch {
	case a.Layer2 && a.BGP:
		return "layer 2, BGP"
	case a.BGP:
		return "BGP"
	default:
		return "layer 2"
	}
}

type checkedPeer struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Port    int    `json:"port"`
	ASN     uint32 `json:"asn"` // 0: any, inside or outside of ours
}

func (p checkedPeer) row() string {
	asn := fmt.Sprint(p.ASN)
	if p.ASN == 0 {
		asn = "any"
	}
	return fmt.Sprintf("  %s\t%s\t%d\t%s", p.Name, p.Address, p.Port, asn)
}

// checkConfig checks all files, prints the result and returns the summary as
// an error if there is anything wrong.
func checkConfig(cmd *cobra.Command, names []string, judge func(*checkedFile), show func(io.Writer, []checkedFile) error) error {
	var files []checkedFile
	faults, faulty, unreadable, refused := 0, 0, 0, 0
	for _, name := range names {
		f := inspect(name, cmd.InOrStdin())
		switch {
		case f.unreadable:
			unreadable++
		case !f.OK:
			faults += len(f.Faults)
			faulty++
		default:
			judge(&f)
		}
		if f.Impact != nil && f.Impact.Refused != "" {
			refused++
		}
		files = append(files, f)
	}
	if err := show(cmd.OutOrStdout(), files); err != nil {
		return ExitError{ExitUnreadable, fmt.Errorf("print the result: %w", err)}
	}
	switch {
	case unreadable > 0:
		return ExitError{ExitUnreadable, fmt.Errorf("files that cannot be read: %d of %d", unreadable, len(files))}
	case faulty > 0:
		return ExitError{exitFaults, fmt.Errorf("faults: %d, in %d of %d files", faults, faulty, len(files))}
	case refused > 0:
		return ExitError{exitRefused, fmt.Errorf("documents that the controller would refuse: %d of %d", refused, len(files))}
	}
	return nil
}

// inspect checks one file.
func inspect(name string, stdin io.Reader) checkedFile {
	f := checkedFile{
		File: name, Faults: []config.Error{}, Warnings: []config.Error{},
		Pools: []checkedPool{}, Advertisements: []checkedAdvertisement{}, Peers: []checkedPeer{},
	}
	text, err := readFile(name, stdin)
	if err != nil {
		f.unreadable = true
		f.Faults = append(f.Faults, config.Error{Message: err.Error()})
		return f
	}
	document, before, err := config.Unwrap(text)
	if err == nil {
		var c config.Config
		if c, err = config.Load(document); err == nil {
			f.describe(c)
			return f
		}
	}
	var faults config.Errors
	if !errors.As(err, &faults) {
		faults = config.Errors{{Message: err.Error()}}
	}
	for _, fault := range faults {
		fault.Line += before
		f.Faults = append(f.Faults, fault)
	}
	return f
}

func readFile(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// describe fills in what a document without faults says.
func (f *checkedFile) describe(c config.Config) {
	f.OK, f.config = true, c
	f.Hash = c.Hash
	f.Warnings = append(f.Warnings, config.Warnings(c)...)
	for _, p := range c.Pools {
		ranges := []string{}
		for _, r := range p.Ranges {
			ranges = append(ranges, r.String())
		}
		f.Pools = append(f.Pools, checkedPool{
			Name: p.Name, State: p.State, AutoAssign: p.AutoAssign, Priority: p.Priority,
			IPv4: p.Size(config.IPv4), IPv6: p.Size(config.IPv6), Ranges: ranges,
		})
	}
	for _, a := range c.Advertisements {
		f.Advertisements = append(f.Advertisements, checkedAdvertisement{
			Name: a.Name, Pools: append([]string{}, a.Pools...), Layer2: a.Layer2 != nil, BGP: a.BGP != nil,
		})
	}
	for _, p := range c.BGP.Peers {
		f.Peers = append(f.Peers, checkedPeer{p.Name, p.Router(), p.Port, p.ASN})
	}
}

func printJSON(w io.Writer, files []checkedFile) error {
	return Encode(w, map[string]any{"files": files})
}

func printText(w io.Writer, files []checkedFile) error {
	var b strings.Builder
	for _, f := range files {
		f.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write prints one file for people: its faults, or what it says.
func (f checkedFile) write(b *strings.Builder) {
	for _, fault := range f.Faults {
		fmt.Fprintf(b, "%s:%s\n", f.File, located(fault))
	}
	if !f.OK {
		return
	}
	fmt.Fprintf(b, "%s: no faults, hash %s\n", f.File, f.Hash)
	Table(b, "  POOL\tSTATE\tAUTO\tPRIORITY\tIPV4\tIPV6", f.Pools, func(p checkedPool) string {
		return fmt.Sprintf("  %s\t%s\t%t\t%d\t%s\t%s", p.Name, p.State, p.AutoAssign, p.Priority, Count(p.IPv4), Count(p.IPv6))
	})
	Table(b, "  ADVERTISEMENT\tPOOLS\tBY", f.Advertisements, func(a checkedAdvertisement) string {
		pools := strings.Join(a.Pools, ", ")
		if pools == "" {
			pools = "all"
		}
		return fmt.Sprintf("  %s\t%s\t%s", a.Name, pools, a.by())
	})
	if len(f.Peers) > 0 {
		Table(b, "  PEER\tADDRESS\tPORT\tAS", f.Peers, checkedPeer.row)
	}
	for _, warning := range f.Warnings {
		fmt.Fprintf(b, "%s: warning: %v\n", f.File, warning)
	}
	if f.Impact != nil {
		f.Impact.write(b, f.File)
	}
}

// located returns a fault as it stands behind the name of its file.
func located(fault config.Error) string {
	text := " " + config.Error{Path: fault.Path, Message: fault.Message}.Error()
	if fault.Line > 0 {
		text = fmt.Sprintf("%d:%s", fault.Line, text)
	}
	return text
}

// Count shows how many addresses there are, as far as that can be counted.
func Count(size uint64) string {
	const most = 1<<63 - 1
	if size == most {
		return ">= 2^63"
	}
	return fmt.Sprint(size)
}
