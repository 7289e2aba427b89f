package main

const help = `announcer runs on every node that may receive the traffic for Services of type
LoadBalancer. For each address in the status of such a Service, exactly one
node answers ARP (for IPv6: NDP); when that node goes away, another one takes
over within about a second. Which one it is follows from the address and the
nodes that could announce it, so all announcers agree without asking anybody;
they know by gossip who is alive. To the routers in bgp.peers every node that
can serve an address advertises it, and no election is needed.

What it needs:
  - the Linux capability NET_RAW, and the network namespace of the host
  - TCP and UDP port 7956 between the nodes (membership.port), for the gossip
  - with routers in bgp.peers: TCP port 179 of each, and the right to get the
    Secrets with their passwords
  - from the API server: list and watch Services, EndpointSlices and Nodes;
    list and watch the ConfigMap ccm-baremetal-accepted and the Secret
    ccm-baremetal-gossip; get the Namespace kube-system; create and patch
    Events; patch the status of Services
  - a configuration that ccm-baremetal has accepted, or --cloud-config FILE

What it never does:
  - choose an address: it announces what a Service's status says and
    ccm-baremetal has confirmed in the condition ccm-baremetal.io/Allocated
  - configure an address on an interface, or answer for an address of a Node or
    of the API server
  - stop announcing because the API server, etcd or ccm-baremetal is away
  - write anything but Events, the condition ccm-baremetal.io/Announced of
    Services, and the file --record on the host

While something is missing at the start it waits, answers /healthz, and says on
/readyz what it waits for. SIGTERM hands all addresses over to other nodes,
which takes at most two seconds, and takes leave of routers, which takes
bgp.leavePause; a second signal ends it at once.

On port 7957: /healthz (is the loop alive), /readyz (does it take part, else why
not), /metrics (announcer_*). On 127.0.0.1:7958: /debug/plan (all decisions and
what they were made from; ?format=text for people), /debug/pprof.`

const examples = `  # as the container of a DaemonSet with hostNetwork, NODE_NAME from spec.nodeName
  announcer

  # on a host, outside of a cluster, with a configuration of its own
  announcer --node-name n1 --kubeconfig admin.conf --cloud-config config.yaml

  # why is this address, or this Service, announced from where it is, or not at all
  announcer explain 192.0.2.10
  announcer explain web/shop -o json

  # which addresses would move if node n1 drained
  announcer simulate --drain n1

  # which announcers this one sees
  announcer members

  # which routers it speaks with, and what it tells them
  announcer bgp`

const explainHelp = `Explain who announces an address, and why.

What is asked is the announcer on this node, or the one at --server, or a saved
/debug/plan. All announcers with the same view give the same answer; only "here"
is about the one that was asked. Shown are, for the address or for all that the
Service holds: the Services that hold it with their endpoints, the node that
announces it and on which links, the advertisements that select it, the nodes
that could announce it in the order in which they would, each with what puts it
behind others (it settles, is stale, drains, or its link is down), and every
other node with the first reason that rules it out.

Exit code: 0, or 1 if the Service or address is not known.`

const explainExamples = `  announcer explain 192.0.2.10
  announcer explain web/shop -o json
  kubectl -n kube-system exec ds/announcer -- /announcer explain web/shop

  # a page that somebody has sent
  announcer explain web/shop --file plan.json`

const membersHelp = `List the live announcers as the one on this node sees them by gossip, or the one
at --server, or as they are in a saved /debug/plan; and the Nodes without one.`

const simulateHelp = `Say which addresses would move where if nodes drained, if announcers died, or if
another configuration were accepted.

Nothing is done: it decides once from what the announcer on this node knows, or
the one at --server, or a saved /debug/plan; and once from the same after the
change. Several changes happen at once. Addresses stay with the Services that
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

const simulateExamples = `  announcer simulate --drain n1
  announcer simulate --lose n1 --lose n2 -o json
  announcer simulate --config new.yaml
  announcer simulate --drain n1 --file plan.json
  announcer simulate --trace night.txt --file plan.json`

const bgpHelp = `Show the sessions of the announcer on this node with its routers, or of the one
at --server, or as they are in a saved /debug/plan; and what each router has been
told: every prefix with its communities, the Services that it is for and the
advertisements that select them.

A session is Established, or Idle, Connecting or Opening with the reason why it
does not come up, or Leaving or Left because the node serves nothing.

Exit code: 0, or 1 if the announcer cannot be asked.`

const bgpExamples = `  announcer bgp
  announcer bgp tor-a
  announcer bgp -o json | jq '.sessions[] | {peer, state, why}'
  kubectl -n kube-system exec ds/announcer -- /announcer bgp`
