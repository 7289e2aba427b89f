package ask

import "strings"

// The texts for people. ASKED stands for what is asked, PROGRAM for the
// command line without the command.

// worded returns a text for a program.
func (o Options) worded(text string) string {
	return strings.NewReplacer("ASKED", o.Asked, "PROGRAM", o.Program).Replace(text)
}

const explainHelp = `Explain who announces an address, and why.

What is asked: ASKED.
All announcers with the same view give the same answer; only "here" is about the
one that was asked. Shown are, for the address or for all that the
Service holds: the Services that hold it with their endpoints, the node that
announces it and on which links, the advertisements that select it, the nodes
that could announce it in the order in which they would, each with what puts it
behind others (it settles, is stale, drains, or its link is down), and every
other node with the first reason that rules it out. With BGP also: the routers
that each node tells of the address, and why others tell none.

Exit code: 0, or 1 if the Service or address is not known.`

const explainExamples = `  PROGRAM explain 192.0.2.10
  PROGRAM explain shop/web -o json

  # a page that somebody has sent
  PROGRAM explain shop/web --file plan.json`

const membersHelp = `List the live announcers as one of them sees the others by gossip, what each of
them says about itself, and the Nodes without one.

What is asked: ASKED.

A member is active; or passive, draining, settling or stale, or says why it is
unfit. OWNS counts the addresses that it announces by layer 2, CONFIG is the hash
of the document that it acts on.

Exit code: 0, or 1 if the announcer cannot be asked.`

const membersExamples = `  PROGRAM members
  PROGRAM members -o json | jq -r '.missing[]'`

const simulateHelp = `Say which addresses would move where if nodes drained, if announcers died, or if
another configuration were accepted.

Nothing is done: it decides once from what an announcer knows, and once from the
same after the change. What is asked: ASKED.
Several changes happen at once. With BGP it also says which nodes would stop or
begin to tell routers of an address. Addresses stay with the Services that
hold them: what another configuration would allocate, ccm-baremetal
check-config says.

With --trace it replays a file of restarts and stalls, a line for each, and says
how often addresses move by the rules, membership.settle included, and how often
they would if nobody settled:

  TIME NODE restart|stall DURATION   # 1h5m n1 restart 4s

Every announcer is taken to be able to announce every address that has an owner
now, and to have been there from the beginning.

Exit code: 0, also if addresses would move; 1 if a node is not known or the
configuration is wrong.`

const simulateExamples = `  PROGRAM simulate --drain n1
  PROGRAM simulate --lose n1 --lose n2 -o json
  PROGRAM simulate --config new.yaml
  PROGRAM simulate --drain n1 --file plan.json
  PROGRAM simulate --trace night.txt --file plan.json`

const bgpHelp = `Show the sessions of an announcer with its routers, and what each router has been
told: every prefix with its communities, the Services that it is for and the
advertisements that select them.

What is asked: ASKED.

A session is Established, or Idle, Connecting or Opening with the reason why it
does not come up, or Leaving or Left because the node serves nothing.

Exit code: 0, or 1 if the announcer cannot be asked.`

const bgpExamples = `  PROGRAM bgp
  PROGRAM bgp tor-a
  PROGRAM bgp -o json | jq '.sessions[] | {peer, state, why}'`
