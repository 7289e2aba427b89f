package ipam

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var update = flag.Bool("update", false, "rewrite what is expected in testdata")

// TestScenarios runs the scenarios in testdata. A file begins with the rule
// that it shows and holds documents of pools and, in the section named
// scenario, steps ("> ...") with what they change: one line per Service whose
// answer is another one, with its addresses, reason and message.
//
//	> pools FILE                      puts the pools of a section in force
//	> create NAMESPACE/NAME ask=...   adds a Service
//	> found NAMESPACE/NAME ADDRS ...  adds one in whose status others wrote
//	> change NAMESPACE/NAME ask=...   changes what it asks for
//	> delete NAMESPACE/NAME           removes it
//	> status NAMESPACE/NAME ADDRS     writes to its status by hand ("-" clears)
//	> namespace NAME label=value,...  sets the labels of a namespace
//	> node NAME ADDRS                 adds a Node ("-" removes it)
//	> apiserver ADDRS                 says where the API server is
//	> later DURATION                  lets time pass
//	> writes fail|work                breaks or mends the API server
//	> restart                         starts a new controller
//	> losses FILE                     shows what pools would take away
//	> show                            shows pools, holdings and who waits
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range archive.Files {
				if f.Name != "scenario" {
					continue
				}
				want := string(f.Data)
				got := play(t, archive, want)
				if *update {
					archive.Files[i].Data = []byte(got)
				} else if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("the scenario goes on another way (-want +got):\n%s", diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestScenariosShowEveryReason keeps the scenarios complete.
func TestScenariosShowEveryReason(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, reason := range reasons {
		if !strings.Contains(all.String(), "["+string(reason)) {
			t.Errorf("no scenario shows %s", reason)
		}
	}
}

var reasons = []Reason{Allocated, AddressOutsidePools, PartialFamilies, NoPool, PoolExhausted, AddressNotInPool, AddressInUse,
	NamespaceNotAllowed, SharingRefused, FamilyUnavailable, InvalidRequest, QuotaExceeded, ForeignAddress, NodeAddress}

// play runs the steps of a scenario and returns it with what they change.
func play(t *testing.T, archive *txtar.Archive, scenario string) string {
	s := &stage{world: newWorld(t), files: map[string]string{}, shown: map[Key]string{}}
	for _, f := range archive.Files {
		s.files[f.Name] = string(f.Data)
	}
	var out strings.Builder
	for line := range strings.Lines(scenario) {
		step, isStep := strings.CutPrefix(line, "> ")
		switch {
		case isStep:
			fmt.Fprint(&out, line, s.step(strings.Fields(step)))
		case line == "\n" || strings.HasPrefix(line, "#"):
			out.WriteString(line)
		}
	}
	return out.String()
}

// stage is a world in which a scenario is played.
type stage struct {
	*world
	files map[string]string
	shown map[Key]string // the line about each Service that was shown last
}

// step takes a step and returns what it changes.
func (s *stage) step(words []string) string {
	name, args := words[0], words[1:]
	switch name {
	case "pools":
		s.configure(document(s.t, s.files[args[0]]))
	case "create":
		s.create(wish(s.t, args[0], args[1:]...))
	case "found":
		s.create(wish(s.t, args[0], args[2:]...), list(args[1])...)
	case "change":
		s.edit(args)
	case "delete":
		s.remove(Key(args[0]))
		delete(s.shown, Key(args[0]))
	case "status":
		s.objects[Key(args[0])].status = list(args[1])
		s.pass(Key(args[0]))
		s.settle()
	case "losses":
		return s.losses(document(s.t, s.files[args[0]]))
	case "show":
		return s.show()
	default:
		s.circumstances(name, args)
	}
	return s.changes()
}

// circumstances takes a step that is about no Service.
func (s *stage) circumstances(name string, args []string) {
	switch name {
	case "namespace":
		s.namespaces[args[0]] = labelSet(strings.Split(args[1], ","))
		s.reconfigure()
	case "node":
		for addr, node := range s.cluster.NodeAddresses {
			if node == args[0] {
				delete(s.cluster.NodeAddresses, addr)
			}
		}
		for _, addr := range list(args[1]) {
			s.cluster.NodeAddresses[addr] = args[0]
		}
		s.reconfigure()
	case "apiserver":
		s.cluster.Reserved = list(args[0])
		s.reconfigure()
	case "later":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "writes":
		s.broken = args[0] == "fail"
		for _, key := range slices.Clone(s.order) {
			s.pass(key)
		}
		s.settle()
	case "restart":
		order := slices.Clone(s.order)
		r := rand.New(rand.NewPCG(1, uint64(len(order))))
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		s.restart(order)
	default:
		s.t.Fatalf("%q is no step", name)
	}
}

func (s *stage) edit(args []string) {
	s.change(Key(args[0]), func(r *Request) {
		for _, word := range args[1:] {
			if err := r.ask(word); err != nil {
				s.t.Fatal(err)
			}
		}
	})
}

// changes returns a line for each Service about which there is something new
// to say.
func (s *stage) changes() string {
	var out strings.Builder
	for _, key := range s.order {
		d := s.objects[key].answer
		reason := string(d.Reason)
		if d.Unmet != "" {
			reason += ", unmet " + string(d.Unmet)
		}
		line := fmt.Sprintf("%s %s [%s] %s\n", key, join(d.Addresses), reason, d.Message)
		if shows := s.objects[key].status; !slices.Equal(shows, d.Addresses) {
			line = fmt.Sprintf("%s shows %s, should show %s", key, join(shows), strings.TrimPrefix(line, string(key)+" "))
		}
		if s.shown[key] != line {
			s.shown[key] = line
			out.WriteString(line)
		}
	}
	return out.String()
}

func (s *stage) show() string {
	var out strings.Builder
	for _, u := range s.a.Usage(s.now) {
		fmt.Fprintf(&out, "pool %s %s: %d of %d held, %d cooling\n", u.Pool, u.Family, u.Held, u.Size, u.Cooling)
	}
	for _, h := range s.a.Holdings() {
		pool := h.Pool
		if pool == "" {
			pool = "-"
		}
		fmt.Fprintf(&out, "%s %s %s\n", h.Address, pool, strings.Trim(fmt.Sprint(h.Services), "[]"))
	}
	waiting := s.a.Waiting()
	for _, reason := range reasons {
		if n := waiting[reason]; n > 0 {
			fmt.Fprintf(&out, "waiting: %d %s\n", n, reason)
		}
	}
	return out.String()
}

func (s *stage) losses(pools []config.Pool) string {
	var out strings.Builder
	for _, l := range s.a.Losses(pools) {
		fmt.Fprintf(&out, "%s %s: %s\n", l.Address, l.Key, l.Message)
	}
	return out.String()
}

func list(text string) []netip.Addr {
	if text == "-" {
		return nil
	}
	return addresses(strings.Split(text, ",")...)
}

func join(list []netip.Addr) string {
	if len(list) == 0 {
		return "-"
	}
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}
