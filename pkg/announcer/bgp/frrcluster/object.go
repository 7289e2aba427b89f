package frrcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	group          = "/apis/" + frrk8s.Group + "/" + frrk8s.Version
	configurations = "frrconfigurations"
)

// object returns where the node's FRRConfiguration is.
func (s *Speaker) object() string {
	return group + "/namespaces/" + url.PathEscape(s.o.Namespace) + "/" + configurations + "/" + url.PathEscape(frrk8s.Name(s.o.Node))
}

// judged is what was wanted and what was there when they last agreed.
type judged struct{ want, live string }

// applied is what the last write has led to. A difference that is left after it
// is not ours to repair, and one from before it is repaired: the generation of
// an object only grows.
type applied struct {
	want       string
	uid        string
	generation int64
}

// covers tells whether an object is what the write of want has made of it, or
// what was there before that.
func (a applied) covers(want string, live *frrk8s.Live) bool {
	return a.want == want && a.uid == live.Metadata.UID && live.Metadata.Generation <= a.generation
}

// written is the last write, and what had been heard of the object before it.
// Until more is heard, what is known of the object is from before the write.
type written struct {
	want  string // empty: no object
	heard uint64
}

// recognize knows the Node, anew if the object is gone: it goes with its Node,
// and one that is owned by a Node of before would go again and again.
func (s *Speaker) recognize(ctx context.Context, gone bool) error {
	if s.self.UID != "" && !gone {
		return nil
	}
	return s.identify(ctx)
}

// identify reads what the FRRConfiguration needs of the Node.
func (s *Speaker) identify(ctx context.Context) error {
	text, err := s.o.API.Get(ctx, "/api/v1/nodes", url.Values{"fieldSelector": {"metadata.name=" + s.o.Node}})
	if err != nil {
		return fmt.Errorf("read the Node: %w", err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name, UID string
				Labels    map[string]string
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("read the Node: %w", err)
	}
	for _, n := range list.Items {
		if n.Metadata.Name != s.o.Node {
			continue
		}
		host := n.Metadata.Labels[hostname]
		if host == "" {
			return fmt.Errorf("the Node has no label %s, by which frr-k8s could select it", hostname)
		}
		s.self = frrk8s.Node{Name: s.o.Node, UID: n.Metadata.UID, Hostname: host}
		return nil
	}
	return fmt.Errorf("there is no Node %s", s.o.Node)
}

const hostname = "kubernetes.io/hostname"

// write makes the FRRConfiguration what it should be, if it is not.
func (s *Speaker) write(ctx context.Context, now time.Time, lineup []plan.Peering, known known) error {
	there := known.items[frrk8s.Name(s.o.Node)]
	if len(lineup) == 0 {
		return s.remove(ctx, there, known.heard)
	}
	if err := s.recognize(ctx, there == nil && s.written.heard != known.heard); err != nil {
		return err
	}
	want := frrk8s.Render(frrk8s.Input{Node: s.self, Namespace: s.o.Namespace, Peerings: lineup})
	text, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encode an FRRConfiguration: %w", err)
	}
	if s.written == (written{string(text), known.heard}) {
		return nil
	}
	if same, err := s.agrees(want, text, there); err != nil || same {
		return err
	}
	name := frrk8s.Name(s.o.Node)
	repair := s.applied.want == string(text)
	if repair && s.repairs.enough(now) {
		return fmt.Errorf("write FRRConfiguration %s/%s: somebody else changes it again and again", s.o.Namespace, name)
	}
	answer, err := s.o.API.Apply(ctx, s.object(), frrk8s.Manager, text)
	switch {
	case errors.Is(err, ErrAbsent):
		return fmt.Errorf("write FRRConfiguration %s/%s: is frr-k8s in that namespace? %w", s.o.Namespace, name, err)
	case err != nil:
		return fmt.Errorf("write FRRConfiguration %s/%s: %w", s.o.Namespace, name, err)
	}
	if repair {
		s.repairs = append(s.repairs, now)
	}
	live, err := frrk8s.ReadLive(answer)
	if err != nil {
		return err
	}
	s.applied = applied{string(text), live.Metadata.UID, live.Metadata.Generation}
	s.written = written{string(text), known.heard}
	s.o.Log.Info("wrote the FRRConfiguration", "name", name, "peers", len(lineup))
	return nil
}

// remove deletes the FRRConfiguration if it is there. One that has just been
// written may be there before that is heard.
func (s *Speaker) remove(ctx context.Context, there []byte, heard uint64) error {
	since := s.written.heard == heard
	if since && s.written.want == "" || there == nil && !since {
		return nil
	}
	name := frrk8s.Name(s.o.Node)
	if err := s.o.API.Delete(ctx, s.object()); err != nil && !errors.Is(err, ErrAbsent) {
		return fmt.Errorf("delete FRRConfiguration %s/%s: %w", s.o.Namespace, name, err)
	}
	s.written, s.applied = written{"", heard}, applied{}
	s.o.Log.Info("deleted the FRRConfiguration", "name", name)
	return nil
}

// agrees tells whether there is nothing to write: what is there is what is
// wanted, or as near to it as a write has brought it.
func (s *Speaker) agrees(want frrk8s.Object, text, there []byte) (bool, error) {
	if there == nil {
		return false, nil
	}
	now := judged{string(text), string(there)}
	if s.judged == now {
		return true, nil
	}
	live, err := frrk8s.ReadLive(there)
	if err != nil {
		return false, err
	}
	if !live.Has(want) && !s.applied.covers(string(text), live) {
		return false, nil
	}
	s.judged = now
	return true, nil
}
