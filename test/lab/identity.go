package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processID names one process for good: numbers are used again, a number
// together with a start time is not.
type processID struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // clock ticks since boot
}

// identify reads the identity of the process that has the number pid now.
func identify(pid int) (processID, error) {
	fields, err := procStat(pid)
	if err != nil {
		return processID{}, err
	}
	started, err := strconv.ParseUint(fields[statStarted], 10, 64)
	if err != nil {
		return processID{}, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return processID{PID: pid, Started: started}, nil
}

// alive says whether exactly this process exists. One that has ended and only
// waits for its parent to take note does not count.
func (id processID) alive() bool {
	fields, err := procStat(id.PID)
	if err != nil {
		return false
	}
	return fields[statStarted] == strconv.FormatUint(id.Started, 10) && fields[statState] != "Z" && fields[statState] != "X"
}

// signal sends sig to exactly this process. The descriptor is taken before the
// identity is looked at, so that the number cannot change hands in between.
func (id processID) signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if !id.alive() {
		return os.ErrProcessDone
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// Fields of /proc/PID/stat behind the name of the program (proc(5) counts from
// 1 and has two before).
const (
	statState   = 0
	statUser    = 11
	statSystem  = 12
	statStarted = 19
)

// procStat splits the line behind the program's name, which may hold spaces
// and parentheses itself.
func procStat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	line := string(b)
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) <= statStarted {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// ticks is how many make a second in /proc; it is 100 on every architecture
// that Go runs on (getconf CLK_TCK).
const ticks = 100

func (id processID) usage() (Usage, error) {
	fields, err := procStat(id.PID)
	if err != nil {
		return Usage{}, err
	}
	user, err := strconv.ParseUint(fields[statUser], 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("/proc/%d/stat: %w", id.PID, err)
	}
	system, err := strconv.ParseUint(fields[statSystem], 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("/proc/%d/stat: %w", id.PID, err)
	}
	memory, err := resident(id.PID)
	return Usage{CPU: time.Duration(user+system) * time.Second / ticks, Memory: memory}, err
}

// resident reads the exact figure; those in stat and status are some hundred
// pages off.
func resident(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib uint64
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s has no Rss", path)
}
