#!/usr/bin/env python3
"""Brings an FRR to the configuration that the announcer writes.

  reload.py DIRECTORY            runs beside an FRR that somebody else runs
  reload.py --daemons DIRECTORY  runs FRR's daemons too, and ends when one ends

It runs as root, and vtysh as FRR's user. DIRECTORY is shared with the announcer:

  frr.conf     what FRR is to have; the announcer replaces it as a whole
  result.json  what became of it: {"hash": SHA-256 of frr.conf, "error": "" or why not}
  state.json   what FRR says of its sessions, renewed every few seconds

FRR is touched only if frr.conf has changed, if a daemon of FRR has started anew, or
if the attempt before has failed, and then only where it differs: BGP, BFD, and route maps whose names begin with
ccm-. All else that FRR may have is left alone. An attempt counts
as done when FRR has been asked what it has and there is no difference. No password
is ever printed or written.
"""

import hashlib
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time

GLANCE = 0.1  # seconds between two looks at the file
LOOK = 1.0  # seconds between two looks at the sessions, while something happens
REST = 5.0  # and at rest
BUSY = 15.0  # seconds after a change in which something happens
RETRY = 2.0  # seconds before a failed attempt is repeated
PATIENCE = 60  # seconds that FRR may take for an answer
ROUNDS = 2  # attempts at once: the second one sees what the first has left

DAEMONS = os.environ.get("FRR_DAEMONS", "/usr/lib/frr")
RUN = os.environ.get("FRR_RUN", "/var/run/frr")
CONFIG = RUN if sys.argv[1:2] == ["--daemons"] else os.environ.get("FRR_CONFIG", "/etc/frr")
USER = os.environ.get("FRR_USER", "frr")

OURS = re.compile(r"bgp route-map delay-timer |bfd$|route-map ccm-|router bgp ")
OPENS = re.compile(r"bfd$|route-map ccm-|router bgp | profile | address-family ")
NEIGHBOUR = re.compile(r"neighbor (\S+) ")
BORN = re.compile(r"neighbor (\S+) (?:remote-as|(interface) v6only remote-as) ")
# What has one value, which a new one replaces.
SINGLE = re.compile(
    r"bgp (?:route-map delay-timer|router-id|graceful-restart restart-time) |set \S+ |network \S+ "
    r"|(?:detect-multiplier|(?:echo )?(?:transmit|receive)-interval|minimum-ttl) "
    r"|neighbor \S+ (?:remote-as|interface|local-as|description|password|port|ebgp-multihop|ttl-security|update-source|bfd profile|timers connect|timers) "
)
OUT = re.compile(r"(neighbor \S+ route-map )\S+( (?:in|out))$")
SECRET = re.compile(r"(password )\S+")


def parse(text):
    """Returns what a configuration has of ours: for each line the contexts that it is in, and itself."""
    out, path, skip = [], (), False
    for raw in text.splitlines():
        line = raw.strip()
        deep = len(raw) - len(raw.lstrip(" "))
        if not line or line[0] == "!" or line.startswith(("exit", "end")):
            continue
        if deep == 0:
            skip, path = not OURS.match(line), ()
        if skip:
            continue
        here = path[:deep] + (line,)
        if OPENS.match(raw):
            path = here
        if line != "bfd" and not line.startswith("address-family "):  # are there as long as anything is in them
            out.append(here)
    return out


def key(path):
    """Returns what no two lines of a context have in common."""
    line = path[-1]
    if OUT.match(line):
        return path[:-1] + (OUT.sub(r"\1\2", line),)
    one = SINGLE.match(line)
    return path[:-1] + (one.group(0) if one else line,)


def changes(have, want):
    """Returns the lines that make of one configuration another one, each with its context."""
    had, wanted, keys = set(have), set(want), {key(p) for p in want}
    gone = [p for p in have if p not in wanted and key(p) not in keys]
    new = [p for p in want if p not in had]
    routing = lambda p: p[0].startswith("router bgp ")
    # Routes find their way through the old policy, or the new one, all the time.
    return (
        [add(p) for p in new if not routing(p)]
        + removals([p for p in gone if routing(p)], wanted)
        + [add(p) for p in new if routing(p)]
        + removals([p for p in gone if not routing(p)], wanted)
    )


def add(path):
    if OPENS.match(" " * (len(path) - 1) + path[-1]):
        return path, None
    return path[:-1], path[-1]


def removals(gone, wanted):
    """Returns the lines that remove others. With a neighbour or a context goes all that it has."""
    out, whole, dead = [], set(), set()
    for p in gone:
        born = BORN.match(p[-1])
        if born:
            dead.add((p[0], born.group(1)))
    for p in gone:
        context, line = p[:-1], p[-1]
        of = NEIGHBOUR.match(line)
        if any(p[:n] in whole for n in range(1, len(p))):
            continue
        if of and (p[0], of.group(1)) in dead:
            born = BORN.match(line)
            if born:
                out.append((context, "no neighbor " + " ".join(w for w in born.groups() if w)))
            continue
        if OPENS.match(" " * len(context) + line):
            whole.add(p)
        out.append((context, line[3:] if line.startswith("no ") else "no " + line))
    return out


def script(steps):
    """Returns the steps as a file for vtysh."""
    out, at = [], ()
    for context, line in steps:
        if context != at:
            out += ["exit"] * len(at) + list(context)
            at = context
        if line:
            out.append(line)
    return "\n".join(out + ["exit"] * len(at)) + "\n"


def vtysh(*args, fds=()):
    """Returns whether vtysh has done it, what it says, and what it says besides. As FRR's user it needs no capability
    for its sockets."""
    groups = os.getgrouplist(USER, pwd.getpwnam(USER).pw_gid)
    command = ("vtysh", "--vty_socket", RUN, "--config_dir", CONFIG, *args)
    try:
        done = subprocess.run(
            command, user=USER, group=groups[0], extra_groups=groups, pass_fds=fds,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return False, "", str(err)
    return not done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def configure(text):
    """Lets FRR read lines. They are in no file, because they have passwords in them. Returns what it says."""
    fd = os.memfd_create("frr.conf")
    with os.fdopen(fd, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        _, said, besides = vtysh("-f", "/proc/self/fd/%d" % fd, fds=(fd,))
        return said + besides


def hush(value):
    """Returns a value of JSON without passwords."""
    if isinstance(value, str):
        return SECRET.sub(r"\1***", value)
    if isinstance(value, dict):
        return {k: hush(v) for k, v in value.items()}
    return [hush(v) for v in value] if isinstance(value, list) else value


def write(path, value):
    """Replaces a file as a whole, for everybody to read: no password gets into it. The new file is never one that
    somebody else has put there."""
    new = path + ".new"
    try:
        os.unlink(new)
    except FileNotFoundError:
        pass
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "w", encoding="utf-8") as f:
        json.dump(hush(value), f)
        os.fchmod(f.fileno(), 0o644)
    os.replace(new, path)


def life():
    """Returns what changes when one of FRR's daemons starts anew."""
    return [stamp(os.path.join(RUN, name + ".vty")) for name in ("zebra", "bgpd", "bfdd")]


def unready():
    """Returns what is not ready yet. A bgpd that zebra does not know yet never tells of the routers that BFD is to watch."""
    done, clients, besides = vtysh("-c", "show zebra client summary")
    if not done:
        return short(clients + besides)
    known = [line.split()[0] for line in clients.splitlines() if line]
    wanted = [name for name in ("bgp", "bfd") if stamp(os.path.join(RUN, name + "d.vty"))]
    return ", ".join("%sd is not connected to zebra yet" % name for name in wanted if name not in known)


def running():
    """Returns what FRR has of ours, or None, and why. Each daemon is asked for what is its own: of them
    all together vtysh shows as well what one has lost and another one still has."""
    out = []
    for name in ("bgpd", "bfdd"):
        if not stamp(os.path.join(RUN, name + ".vty")):
            continue
        done, said, besides = vtysh("-d", name, "-c", "show running-config")
        if not done:
            return None, besides  # and nothing of what it has said, which has passwords in it
        out += [p for p in parse(said) if (p[0] == "bfd") == (name == "bfdd")]
    return out, ""


def bring(text):
    """Brings FRR to a configuration. Returns what is wrong, "" if nothing is."""
    waits = unready()
    if waits:
        return "FRR is not ready: " + waits
    want, said = parse(text), ""
    for attempt in range(ROUNDS + 1):
        have, besides = running()
        if have is None:
            return "FRR does not say what it has: " + short(besides)
        left = [" / ".join(p) for p in set(want) ^ set(have)]
        if not left:
            return ""
        if attempt < ROUNDS:
            said = configure(script(changes(have, want)))
    return short("FRR differs from what it should have in %d lines: %s\n%s" % (len(left), "; ".join(sorted(left)[:10]), said), 2000)


def short(text, most=500):
    """Returns the beginning of what is said. A password is hidden as long as it is whole."""
    return hush(text.strip())[:most]


def state():
    """Returns what FRR says of its sessions."""
    done, out, besides = vtysh("-c", "show bgp vrf all neighbors json")
    if not done:
        return {"at": time.time(), "error": short(out + besides), "bgp": {}}
    try:
        return {"at": time.time(), "error": "", "bgp": json.loads(out or "{}")}
    except ValueError as err:
        return {"at": time.time(), "error": "FRR says what is no JSON: %s" % err, "bgp": {}}


def read(path):
    """Returns a file, and None if there is none."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None


def stamp(path):
    """Returns what changes when a file is replaced."""
    try:
        info = os.stat(path)
        return info.st_ino, info.st_mtime_ns, info.st_size
    except OSError:
        return None


class Follower:
    """What has been done with the files of a directory."""

    def __init__(self, directory):
        self.directory, self.conf = directory, os.path.join(directory, "frr.conf")
        self.applied = self.seen = self.life = None
        self.tried = self.looked = self.changed = -PATIENCE
        self.trouble = {}  # that has been complained of, by file

    def put(self, name, value):
        """Replaces a file, and returns whether that went well. FRR and its sessions go on if it did not."""
        trouble = ""
        try:
            write(os.path.join(self.directory, name), value)
        except OSError as err:
            trouble = "cannot write %s, will retry: %s" % (name, err)
        if trouble and trouble != self.trouble.get(name):
            print(trouble, file=sys.stderr, flush=True)
        self.trouble[name] = trouble
        return not trouble

    def step(self, now):
        failed = self.applied is None and now - self.tried >= RETRY
        at, alive = stamp(self.conf), life()
        if alive != self.life:
            self.applied, self.life, failed = None, alive, True
        if at is not None and (at != self.seen or failed):
            self.seen, self.tried = at, now
            self.follow(read(self.conf), now)
        if now - self.looked >= (LOOK if now - self.changed < BUSY else REST):
            self.put("state.json", state())
            self.looked = now

    def follow(self, text, now):
        wanted = None if text is None else hashlib.sha256(text).hexdigest()
        if wanted is None or wanted == self.applied:
            return
        error = bring(text.decode(errors="replace"))
        told = self.put("result.json", {"hash": wanted, "error": error})
        self.applied = wanted if told and not error else None
        self.looked, self.changed = -PATIENCE, now


class Daemons:
    """FRR's daemons. They begin with nothing, and end without a word to routers: those that are to
    hear something have heard it from the announcer, and the others keep the routes."""

    def __init__(self):
        self.all = []
        empty = os.path.join(RUN, "vtysh.conf")  # which vtysh asks for, and nobody else has anything to say either
        with open(empty, "w", encoding="utf-8"):
            pass
        socket = os.path.join(RUN, "zserv.api")
        if os.path.exists(socket):
            os.remove(socket)
        for name in ("zebra", "bgpd", "bfdd"):
            args = ["-f", empty, "-i", os.path.join(RUN, name + ".pid"), "-z", socket, "--vty_socket", RUN]
            args += ["-u", USER, "-g", USER, "--log", "stdout", "--log-level", "warnings"]
            if name == "bfdd":
                args += ["--bfdctl", os.path.join(RUN, "bfdd.sock")]
            self.all.append(subprocess.Popen([os.path.join(DAEMONS, name), *args]))
            while not os.path.exists(socket):  # whoever does not find zebra looks again after 10 s
                self.check()
                time.sleep(GLANCE)

    def check(self):
        for d in self.all:
            if d.poll() is not None:
                sys.exit("%s has ended: %d" % (d.args[0], d.returncode))

    def kill(self):
        for d in self.all:
            try:
                d.kill()
            except PermissionError:
                pass  # in a container, whose end they do not survive


def main(args):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    daemons = Daemons() if args[:1] == ["--daemons"] else None
    follower = Follower(args[-1])
    try:
        while True:
            if daemons:
                daemons.check()
            follower.step(time.monotonic())
            time.sleep(GLANCE)
    finally:
        if daemons:
            daemons.kill()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or len(sys.argv) == 3 and sys.argv[1] != "--daemons":
        sys.exit(__doc__)
    main(sys.argv[1:])
