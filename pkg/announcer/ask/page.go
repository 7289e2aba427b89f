// Package ask puts questions to announcers: who announces an address and why,
// who lives, what would move if something happened, what routers are told. The
// answers come from /debug/plan alone, so a saved page answers as a living
// announcer does. Commands gives them a command line, for every program that
// can get at a page.
package ask

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
	"github.com/spf13/pflag"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

const (
	pageWithin = 10 * time.Second
	pageAtMost = 1 << 30 // bytes
)

// Options is what the commands of two programs differ in.
type Options struct {
	Program string // the command line without the command: announcer
	Asked   string // whom a command asks, as part of a sentence

	// Pages makes, for one command, what finds the announcer.
	Pages func() Pages
}

// Pages finds the page that a command is about.
type Pages interface {
	// AddFlags adds the flags that say which page it is.
	AddFlags(fs *pflag.FlagSet)

	// Open returns the page, a /debug/plan as JSON. The caller closes it.
	Open(ctx context.Context, stdin io.Reader) (io.ReadCloser, error)
}

// printer prints itself for people.
type printer interface{ Print(io.Writer) error }

// Commands returns the commands explain, members, simulate and bgp.
func Commands(o Options) []*cobra.Command {
	return []*cobra.Command{newExplainCommand(o), newMembersCommand(o), newSimulateCommand(o), newBGPCommand(o)}
}

// command completes a command that shows what answer makes of a page.
func (o Options) command(cmd *cobra.Command, answer func(status.Plan, []string) (printer, error)) *cobra.Command {
	pages, output := o.Pages(), ""
	cmd.Long, cmd.Example = o.worded(cmd.Long), o.worded(cmd.Example)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if output != "text" && output != "json" {
			return fmt.Errorf("--output is text or json, not %q", output)
		}
		p, err := read(cmd, pages)
		if err != nil {
			return err
		}
		out, err := answer(p, args)
		if err != nil {
			return err
		}
		if output == "json" {
			return PrintJSON(cmd.OutOrStdout(), out)
		}
		if p.ObserveOnly {
			fmt.Fprintf(cmd.OutOrStdout(), "The announcer on %s only observes: what follows is what would be, and nothing of it is announced.\n\n", p.World.Node)
		}
		return out.Print(cmd.OutOrStdout())
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	pages.AddFlags(fs)
	fs.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func read(cmd *cobra.Command, pages Pages) (status.Plan, error) {
	page, err := pages.Open(cmd.Context(), cmd.InOrStdin())
	if err != nil {
		return status.Plan{}, err
	}
	defer page.Close()
	return Read(page)
}

// Read reads a page. One that shows nothing yet is an error.
func Read(page io.Reader) (status.Plan, error) {
	var p status.Plan
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

// Server are the pages of an announcer that can be reached by its debug
// address, and saved ones.
type Server struct{ address, file string }

// AddFlags adds --server and --file.
func (s *Server) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.address, "server", "http://127.0.0.1:7958", "debug `address` of the announcer to ask")
	fs.StringVar(&s.file, "file", "", "look at a saved /debug/plan instead; - is the standard input")
}

// Open returns the page that the flags name.
func (s *Server) Open(ctx context.Context, stdin io.Reader) (io.ReadCloser, error) {
	if s.file != "" {
		return OpenFile(s.file, stdin)
	}
	client := &http.Client{Timeout: pageWithin, Transport: &http.Transport{}} // no proxy knows the way to this node
	page, err := Get(ctx, client, s.address)
	if err != nil {
		return nil, fmt.Errorf("%w; is it running on this node?", err)
	}
	return page, nil
}

// OpenFile opens a saved page; - is stdin, which is never closed.
func OpenFile(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// Get asks the announcer with a debug address for its page. The caller closes it.
func Get(ctx context.Context, client *http.Client, address string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/debug/plan", nil)
	if err != nil {
		return nil, fmt.Errorf("the address of the announcer: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the announcer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("ask the announcer: %s says %s", request.URL, response.Status)
	}
	return response.Body, nil
}

// PrintJSON writes a value as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
