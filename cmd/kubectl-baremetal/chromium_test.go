//go:build chromium

package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// The window, in pixels.
const (
	windowWidth  = 1280
	windowHeight = 1700
)

// browserWithin bounds one run of Chromium, which takes four seconds on a machine
// at rest.
const browserWithin = 4 * time.Minute

// These tests need Chromium, and so a build tag: scripts/test ui runs them. They
// rewrite their golden file as others do, by -update.

// browser is a headless Chromium that reaches one page. All else that it asks
// for, whatever the host, ends at a proxy that fetches nothing and remembers it.
type browser struct {
	mu    sync.Mutex
	asked []string // URLs, and of TLS host and port only
	proxy *httptest.Server
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{}
	b.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked = append(b.asked, r.URL.String())
		http.Error(w, "nothing is fetched", http.StatusForbidden)
	}))
	t.Cleanup(b.proxy.Close)
	return b
}

// askedFor returns what a host was asked for. (Chromium asks for things of its
// maker's too.)
func (b *browser) askedFor(host string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.asked), func(url string) bool { return !strings.Contains(url, host) })
}

// open shows the page at a URL, and returns the document that became of it and
// a picture of the window, which -artifacts keeps for people.
func (b *browser) open(t *testing.T, url string) (*html.Node, image.Image) {
	t.Helper()
	dir := profile(t)
	picture := filepath.Join(t.ArtifactDir(), "screenshot.png")
	ctx, cancel := context.WithTimeout(t.Context(), browserWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
		"--user-data-dir="+filepath.Join(dir, "profile"),
		"--proxy-server="+b.proxy.URL, "--proxy-bypass-list=<-loopback>;"+strings.Trim(strings.TrimPrefix(url, "http:"), "/"),
		fmt.Sprintf("--window-size=%d,%d", windowWidth, windowHeight), "--force-device-scale-factor=1", "--hide-scrollbars",
		"--screenshot="+picture, "--dump-dom", url)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children, if any is left
	}
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, &stderr)
	}
	document, err := html.Parse(&stdout)
	if err != nil {
		t.Fatal(err)
	}
	return document, decode(t, picture)
}

// profile returns a directory for one run of a browser. Unlike that of t.TempDir
// it may still be written to when the test ends.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ccm-baremetal-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 50 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Error(err)
	})
	return dir
}

func decode(t *testing.T, file string) image.Image {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return picture
}

// colours counts the distinct colours of a picture.
func colours(picture image.Image) int {
	seen := map[color.RGBA]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			seen[at(picture, x, y)] = true
		}
	}
	return len(seen)
}

// bars returns the lengths, from top to bottom, of the areas of one colour that
// are high enough to be no letters: for each the longest of its lines of pixels.
func bars(picture image.Image, of color.RGBA) []int {
	const high = 5 // pixels
	var lengths []int
	longest, lines := 0, 0
	for y := range picture.Bounds().Dy() + 1 {
		run := longestRun(picture, y, of)
		if run >= high {
			longest, lines = max(longest, run), lines+1
			continue
		}
		if lines >= high {
			lengths = append(lengths, longest)
		}
		longest, lines = 0, 0
	}
	return lengths
}

// longestRun returns how many pixels of a line that are beside each other have
// the colour; a line outside the picture has none.
func longestRun(picture image.Image, y int, of color.RGBA) int {
	longest, run := 0, 0
	for x := range picture.Bounds().Dx() {
		if !image.Pt(x, y).In(picture.Bounds()) || at(picture, x, y) != of {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

func at(picture image.Image, x, y int) color.RGBA {
	return color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)
}
