// Command images builds the container images of a release without a container
// engine: one static program in an otherwise empty file system, with the list of
// what it was built of. Equal source gives equal bytes, wherever and whenever it is
// built by the same version of Go. It is a module of its own, because nobody else
// needs what writes images.
//
//	go run . -version v0.1.0 -out ../../dist/images
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "images:", err)
		}
		os.Exit(1)
	}
}

// platforms are the architectures that a release has images for.
const platforms = "amd64,arm64"

func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	root := fs.String("root", "../..", "the `directory` of the repository")
	version := fs.String("version", "", "the `version`: the tag of the images, and what the programs call themselves")
	dir := fs.String("out", "", "write the images into this `directory`")
	arch := fs.String("arch", platforms, "the `architectures` to build for")
	program := fs.String("program", "", "build the image of this `program` only; default: of each")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *version == "" || *dir == "" {
		return errors.New("say -version and -out")
	}
	chosen, err := choose(*program)
	if err != nil {
		return err
	}
	b := builder{root: *root, version: *version, out: *dir}
	if b.commit, err = commit(ctx, *root); err != nil {
		return err
	}
	if b.created, err = commitTime(ctx, *root); err != nil {
		return err
	}
	for _, p := range chosen {
		if err := b.write(ctx, p, strings.Split(*arch, ",")); err != nil {
			return fmt.Errorf("make the image of %s: %w", p.name, err)
		}
		fmt.Fprintf(out, "%s:%s for %s in %s\n", p.name, *version, *arch, filepath.Join(*dir, p.name))
	}
	return nil
}

// choose returns the program with a name, or with "" all of them.
func choose(name string) ([]program, error) {
	if name == "" {
		return programs, nil
	}
	for _, p := range programs {
		if p.name == name {
			return []program{p}, nil
		}
	}
	return nil, fmt.Errorf("there is no image of a program %q", name)
}

// commit returns the commit of the source, with "-dirty" at the end if what lies
// there is not quite it.
func commit(ctx context.Context, root string) (string, error) {
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" {
		head += "-dirty"
	}
	return head, nil
}

// commitTime returns when the source was committed: the only time that is in an
// image, so that it does not depend on when it was built.
func commitTime(ctx context.Context, root string) (time.Time, error) {
	out, err := git(ctx, root, "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(out, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// git asks about the repository in root.
func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
