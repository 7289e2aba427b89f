package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
)

const logLines = 5000 // of each container

func newDumpCommand(c *cluster) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "dump",
		Short:   "Write one archive for a bug report, without secrets",
		Long:    dumpHelp,
		Example: dumpExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				file = "ccm-baremetal-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			archive, count, err := pack(cmd.Context(), c)
			if err != nil {
				return err
			}
			if file == "-" {
				_, err = cmd.OutOrStdout().Write(archive)
				return err
			}
			if err := os.WriteFile(file, archive, 0o600); err != nil {
				return fmt.Errorf("write the archive: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d files. Read it before you send it: names and addresses are in it.\n", file, count)
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write this `file`, - for the standard output; default: ccm-baremetal-TIME.tar.gz")
	return cmd
}

// dump collects the files of an archive. What cannot be read becomes a line in
// errors.txt, and the rest goes on.
type dump struct {
	files []entry
	errs  []error
}

type entry struct {
	name string
	text []byte
}

// add adds a value as masked JSON.
func (d *dump) add(name string, value any, err error) {
	if err != nil {
		d.errs = append(d.errs, fmt.Errorf("%s: %w", name, err))
		return
	}
	text, err := json.Marshal(value)
	if err == nil {
		text, err = masked(text)
	}
	if err != nil {
		d.errs = append(d.errs, fmt.Errorf("%s: %w", name, err))
		return
	}
	d.files = append(d.files, entry{name, text})
}

// pack returns the archive, and how many files are in it.
func pack(ctx context.Context, c *cluster) ([]byte, int, error) {
	client, err := c.Client()
	if err != nil {
		return nil, 0, err
	}
	var d dump
	found, all, err := examine(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	d.add("doctor.json", found, nil)
	for _, h := range all {
		if h.page == nil {
			d.errs = append(d.errs, fmt.Errorf("plans/%s.json: %w", h.node, h.err))
			continue
		}
		d.add("plans/"+h.node+".json", json.RawMessage(h.page), nil)
	}
	d.objects(ctx, client, c.installed)
	d.secrets(ctx, c)
	d.logs(ctx, client, c.installed)
	archive, err := d.archive(time.Now())
	return archive, len(d.files), err
}

// objects adds what the API server knows of us and of what we serve.
func (d *dump) objects(ctx context.Context, client kubernetes.Interface, namespace string) {
	var o metav1.ListOptions
	core := client.CoreV1()
	version, err := client.Discovery().ServerVersion()
	d.add("version.json", version, err)
	services, err := core.Services("").List(ctx, o)
	if err == nil {
		services.Items = only(services.Items, func(s v1.Service) bool { return s.Spec.Type == v1.ServiceTypeLoadBalancer })
	}
	d.add("services.json", services, err)
	nodes, err := core.Nodes().List(ctx, o)
	d.add("nodes.json", nodes, err)
	endpoints, err := client.DiscoveryV1().EndpointSlices("").List(ctx, o)
	d.add("endpointslices.json", endpoints, err)
	for _, name := range []string{"ccm-baremetal", "ccm-baremetal-accepted"} {
		m, err := core.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		d.add("configmap-"+name+".json", m, err)
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, "ccm-baremetal", metav1.GetOptions{})
	d.add("lease.json", lease, err)
	set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, "announcer", metav1.GetOptions{})
	d.add("daemonset.json", set, err)
	deployment, err := client.AppsV1().Deployments(namespace).Get(ctx, "ccm-baremetal", metav1.GetOptions{})
	d.add("deployment.json", deployment, err)
	events, err := core.Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service"})
	d.add("events.json", events, err)
	own, err := core.Events(namespace).List(ctx, o)
	d.add("events-"+namespace+".json", own, err)
}

func only[T any](all []T, wanted func(T) bool) []T {
	var out []T
	for _, x := range all {
		if wanted(x) {
			out = append(out, x)
		}
	}
	return out
}

// secrets adds the names of Secrets. Only metadata is asked for: no value ever
// leaves the API server.
func (d *dump) secrets(ctx context.Context, c *cluster) {
	config, err := c.config()
	if err != nil {
		d.errs = append(d.errs, err)
		return
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		d.errs = append(d.errs, err)
		return
	}
	list, err := client.Resource(v1.SchemeGroupVersion.WithResource("secrets")).Namespace(c.installed).List(ctx, metav1.ListOptions{})
	if err != nil {
		d.add("secrets.json", nil, err)
		return
	}
	names := []string{}
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	d.add("secrets.json", names, nil)
}

// logs adds the last lines of our Pods, of the process before as well.
func (d *dump) logs(ctx context.Context, client kubernetes.Interface, namespace string) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (announcer, ccm-baremetal)"})
	d.add("pods.json", pods, err)
	if err != nil {
		return
	}
	lines := int64(logLines)
	for _, p := range pods.Items {
		// FRR beside the announcer is among the former.
		for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			for _, previous := range []bool{false, true} {
				if previous && status.RestartCount == 0 {
					continue
				}
				name := fmt.Sprintf("logs/%s-%s.log", p.Name, status.Name)
				if previous {
					name = fmt.Sprintf("logs/%s-%s-previous.log", p.Name, status.Name)
				}
				text, err := client.CoreV1().Pods(namespace).GetLogs(p.Name, &v1.PodLogOptions{Container: status.Name, Previous: previous, TailLines: &lines}).DoRaw(ctx)
				if err != nil {
					d.errs = append(d.errs, fmt.Errorf("%s: %w", name, err))
					continue
				}
				d.files = append(d.files, entry{name, []byte(maskLines(string(text)))})
			}
		}
	}
}

// archive packs the files into one.
func (d *dump) archive(now time.Time) ([]byte, error) {
	if len(d.errs) > 0 {
		d.files = append(d.files, entry{"errors.txt", []byte(maskLines(errors.Join(d.errs...).Error() + "\n"))})
	}
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	for _, f := range d.files {
		head := &tar.Header{Name: "ccm-baremetal/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: now, Format: tar.FormatPAX}
		if err := files.WriteHeader(head); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := files.Write(f.text); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := errors.Join(files.Close(), packed.Close()); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return out.Bytes(), nil
}

// masked returns JSON with the secrets in it masked, indented.
func masked(text []byte) ([]byte, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("mask secrets: %w", err)
	}
	var out bytes.Buffer
	err := ask.PrintJSON(&out, mask("", value))
	return out.Bytes(), err
}
