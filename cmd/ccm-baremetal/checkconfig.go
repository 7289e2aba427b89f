package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// The exit codes of check-config. Changing one is an API change.
const (
	exitFaults     = 1 // a document has faults
	exitUnreadable = 2 // a file cannot be read, or the command line makes no sense
)

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

// exitCode returns the code with which the process ends after err.
func exitCode(err error) int {
	var coded exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	default:
		return 1
	}
}

const checkConfigHelp = `Check configuration documents without a cluster.

Each FILE is a document, or a manifest with a ConfigMap that holds one under the
key config.yaml; - is the standard input. All faults are shown at once, one
a line:

  FILE:LINE: path: what is wrong and what would be right

A document without faults is followed by its pools with the number of addresses
in each family, its advertisements, and warnings about what is allowed and yet
may not be meant. The hash is that which every process reports for the document
that it uses.

Exit code: 0 if all documents are right, 1 if one has faults, 2 if a file
cannot be read. Nothing is read from or written to a cluster.

With -o json the result is one object:

  {"files": [{
    "file": "config.yaml", "ok": true, "hash": "5d0b...",
    "faults":   [{"path": "pools[0] (lan).addresses[1]", "line": 5, "message": "..."}],
    "warnings": [{"path": "pools[1] (dmz)", "line": 0, "message": "..."}],
    "pools": [{"name": "lan", "state": "active", "autoAssign": true, "priority": 0,
               "ipv4": 51, "ipv6": 0, "ranges": ["192.0.2.100-192.0.2.150"]}],
    "advertisements": [{"name": "default", "pools": [], "layer2": true}]}]}

Lists are never null; a document with faults has neither pools nor
advertisements; no pools in an advertisement means all; line 0 means not known;
numbers of addresses stop at 9223372036854775807. A file that cannot be read
has the reason as its only fault.`

const checkConfigExamples = `  # a file in a repository, as a step of a pipeline
  ccm-baremetal check-config deploy/ccm-baremetal/configmap.yaml

  # what is in the cluster now
  kubectl -n kube-system get configmap ccm-baremetal -o yaml | ccm-baremetal check-config -

  # only the faults, for a tool
  ccm-baremetal check-config -o json config.yaml | jq -r '.files[].faults[].message'

  # completion and checks while typing, in editors that know JSON Schema
  ccm-baremetal check-config --schema > ccm-baremetal.schema.json`

// newCheckConfigCommand returns the command check-config. Its error carries
// the exit code (see exitCode) and the summary; the faults are printed.
func newCheckConfigCommand() *cobra.Command {
	var output string
	var schema bool
	cmd := &cobra.Command{
		Use:           "check-config FILE...",
		Short:         "Check configuration documents without a cluster",
		Long:          checkConfigHelp,
		Example:       checkConfigExamples,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !schema {
				return exitError{exitUnreadable, errors.New("which FILE? - is the standard input; see --help")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case schema:
				_, err := cmd.OutOrStdout().Write(config.Schema())
				return err
			case output == "text":
				return checkConfig(cmd, args, printText)
			case output == "json":
				return checkConfig(cmd, args, printJSON)
			default:
				return exitError{exitUnreadable, fmt.Errorf("unknown output %q: text or json", output)}
			}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of the document and check nothing")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{exitUnreadable, err} })
	return cmd
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

	unreadable bool
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
}

// checkConfig checks all files, prints the result and returns the summary as
// an error if there is anything wrong.
func checkConfig(cmd *cobra.Command, names []string, show func(io.Writer, []checkedFile) error) error {
	var files []checkedFile
	faults, faulty, unreadable := 0, 0, 0
	for _, name := range names {
		f := inspect(name, cmd.InOrStdin())
		files = append(files, f)
		switch {
		case f.unreadable:
			unreadable++
		case !f.OK:
			faults += len(f.Faults)
			faulty++
		}
	}
	if err := show(cmd.OutOrStdout(), files); err != nil {
		return exitError{exitUnreadable, fmt.Errorf("print the result: %w", err)}
	}
	switch {
	case unreadable > 0:
		return exitError{exitUnreadable, fmt.Errorf("files that cannot be read: %d of %d", unreadable, len(files))}
	case faulty > 0:
		return exitError{exitFaults, fmt.Errorf("faults: %d, in %d of %d files", faults, faulty, len(files))}
	}
	return nil
}

// inspect checks one file.
func inspect(name string, stdin io.Reader) checkedFile {
	f := checkedFile{
		File: name, Faults: []config.Error{}, Warnings: []config.Error{},
		Pools: []checkedPool{}, Advertisements: []checkedAdvertisement{},
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
	f.OK = true
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
			Name: a.Name, Pools: append([]string{}, a.Pools...), Layer2: a.Layer2 != nil,
		})
	}
}

func printJSON(w io.Writer, files []checkedFile) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{"files": files})
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
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "  POOL\tSTATE\tAUTO\tPRIORITY\tIPV4\tIPV6")
	for _, p := range f.Pools {
		fmt.Fprintf(table, "  %s\t%s\t%t\t%d\t%s\t%s\n", p.Name, p.State, p.AutoAssign, p.Priority, count(p.IPv4), count(p.IPv6))
	}
	table.Flush()
	fmt.Fprintln(table, "  ADVERTISEMENT\tPOOLS\tBY")
	for _, a := range f.Advertisements {
		pools := strings.Join(a.Pools, ", ")
		if pools == "" {
			pools = "all"
		}
		fmt.Fprintf(table, "  %s\t%s\tlayer 2\n", a.Name, pools)
	}
	table.Flush()
	for _, warning := range f.Warnings {
		fmt.Fprintf(b, "%s: warning: %v\n", f.File, warning)
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

// count shows how many addresses there are, as far as that can be counted.
func count(size uint64) string {
	const most = 1<<63 - 1
	if size == most {
		return ">= 2^63"
	}
	return fmt.Sprint(size)
}
