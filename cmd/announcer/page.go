package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

const (
	pageWithin = 10 * time.Second
	pageAtMost = 1 << 30 // bytes
)

// asking is what the commands that look at an announcer have in common.
type asking struct {
	server string
	file   string
	output string
}

func (a *asking) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&a.server, "server", "http://127.0.0.1:7958", "debug `address` of the announcer to ask")
	fs.StringVar(&a.file, "file", "", "look at a saved /debug/plan instead; - is the standard input")
	fs.StringVarP(&a.output, "output", "o", "text", "text or json")
}

func (a *asking) check() error {
	if a.output != "text" && a.output != "json" {
		return fmt.Errorf("--output is text or json, not %q", a.output)
	}
	return nil
}

// plan returns the page. One that shows nothing yet is an error.
func (a *asking) plan(cmd *cobra.Command) (status.Plan, error) {
	if err := a.check(); err != nil {
		return status.Plan{}, err
	}
	var p status.Plan
	page, err := a.open(cmd.Context(), cmd.InOrStdin())
	if err != nil {
		return p, err
	}
	defer page.Close()
	if err := json.NewDecoder(io.LimitReader(page, pageAtMost)).Decode(&p); err != nil {
		return p, fmt.Errorf("read the plan: %w", err)
	}
	if len(p.World.Members) == 0 && p.Error != "" {
		return p, fmt.Errorf("the announcer on %s does not know enough yet: %s", p.World.Node, p.Error)
	}
	if p.World.Node == "" {
		return p, errors.New("read the plan: this is no /debug/plan")
	}
	return p, nil
}

func (a *asking) open(ctx context.Context, stdin io.Reader) (io.ReadCloser, error) {
	switch a.file {
	case "":
		return get(ctx, strings.TrimSuffix(a.server, "/")+"/debug/plan")
	case "-":
		return io.NopCloser(stdin), nil
	default:
		return os.Open(a.file)
	}
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	client := http.Client{Timeout: pageWithin, Transport: &http.Transport{}} // no proxy knows the way to this node
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the announcer: %w; is it running on this node?", err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("ask the announcer: %s says %s", url, response.Status)
	}
	return response.Body, nil
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
