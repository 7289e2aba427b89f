// Command install makes what is applied to a cluster: the manifests of a release
// of the directories for kustomize, and, to look at it without Helm, what the
// chart makes of given values. It is a module of its own, because nobody else
// needs kustomize and Helm.
//
//	go run . -version v0.1.0 -out ../../dist    # the files of a release
//	go run . -chart -values my-values.yaml      # what the chart would install
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "install:", err)
		}
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("install", flag.ContinueOnError)
	manifests := fs.String("manifests", "../../manifests", "the `directory` manifests of the repository")
	version := fs.String("version", "", "the `version` of the images; needed with -out")
	dir := fs.String("out", "", "write the manifests of a release into this `directory`")
	asChart := fs.Bool("chart", false, "print what the chart makes of -values")
	values := fs.String("values", "", "a `file` of values for the chart; default: none")
	namespace := fs.String("namespace", "kube-system", "the `namespace` into which the chart would be installed")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case *asChart:
		given, err := readValues(*values)
		if err != nil {
			return err
		}
		text, err := chart(filepath.Join(*manifests, "chart"), *namespace, given)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	case *dir != "" && *version != "":
		return release(*manifests, *dir, *version)
	}
	return errors.New("nothing to do: say -chart, or -out with -version")
}
