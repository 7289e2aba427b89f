package frrcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	firstPause   = time.Second
	longestPause = time.Minute

	// watchFor is how long a watch may last: a load balancer that keeps a dead
	// connection open hides changes no longer.
	watchFor = 5 * time.Minute

	listWithin = 30 * time.Second
)

// follower knows the objects of one kind that a query selects. What it knew
// stays known while it cannot be read.
type follower struct {
	api   API
	path  string
	query url.Values
	kick  func()

	mu     sync.Mutex
	synced bool
	items  map[string][]byte // by name
	err    error             // why it cannot be read
}

// state returns what is known. The texts must not be changed.
func (f *follower) state() (items map[string][]byte, synced bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.items), f.synced, f.err
}

// forget makes everything unknown. The follower must not run.
func (f *follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.synced, f.err = nil, false, nil
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		f.note(err)
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(jitter(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

// jitter takes up to a quarter off, so that the nodes of a cluster do not all
// ask at once.
func jitter(d time.Duration) time.Duration { return d - time.Duration(rand.Int64N(int64(d)/4+1)) }

func (f *follower) note(err error) {
	f.mu.Lock()
	changed := fmt.Sprint(err) != fmt.Sprint(f.err)
	f.err = err
	if errors.Is(err, ErrAbsent) {
		f.items, f.synced = nil, false // with its kind all of them are gone
	}
	f.mu.Unlock()
	if changed {
		f.kick()
	}
}

// header is what is read of an object, or of a list of them.
type header struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// once lists, and watches until that does not go on. It returns nil for what
// is no fault.
func (f *follower) once(ctx context.Context) error {
	version, err := f.list(ctx)
	for err == nil && ctx.Err() == nil {
		version, err = f.watch(ctx, version)
	}
	if errors.Is(err, errExpired) {
		return nil
	}
	return err
}

func (f *follower) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	text, err := f.api.Get(ctx, f.path, f.query)
	if err != nil {
		return "", err
	}
	var list struct {
		header
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return "", fmt.Errorf("read a list of %s: %w", f.path, err)
	}
	items := map[string][]byte{}
	for _, item := range list.Items {
		var h header
		if err := json.Unmarshal(item, &h); err != nil {
			return "", fmt.Errorf("read an object of %s: %w", f.path, err)
		}
		items[h.Metadata.Name] = item
	}
	f.mu.Lock()
	f.items, f.synced, f.err = items, true, nil
	f.mu.Unlock()
	f.kick()
	return list.Metadata.ResourceVersion, nil
}

// errExpired: a watch cannot go on from where it ended.
var errExpired = errors.New("expired")

// watch takes changes until the stream ends, and returns where that was.
func (f *follower) watch(ctx context.Context, version string) (string, error) {
	query := maps.Clone(f.query)
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(jitter(watchFor).Seconds())))
	stream, err := f.api.Stream(ctx, f.path, query)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }() // it has been read
	for events := json.NewDecoder(stream); ; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return version, nil
		case err != nil:
			return "", errExpired // a connection that broke: list anew
		}
		var h header
		if err := json.Unmarshal(e.Object, &h); err != nil || e.Type == "ERROR" {
			return "", errExpired
		}
		version = h.Metadata.ResourceVersion
		f.take(e.Type, h.Metadata.Name, e.Object)
	}
}

func (f *follower) take(change, name string, object []byte) {
	f.mu.Lock()
	switch change {
	case "ADDED", "MODIFIED":
		f.items[name] = object
	case "DELETED":
		delete(f.items, name)
	}
	f.mu.Unlock()
	if change != "BOOKMARK" {
		f.kick()
	}
}

// wrote takes an object as the API server has answered a write with it: the
// watch tells of it later.
func (f *follower) wrote(name string, object []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.items != nil && object != nil {
		f.items[name] = object
	} else {
		delete(f.items, name)
	}
}
