package main

const help = `See what ccm-baremetal and its announcers do, and take nodes out of service.

It is a plugin of kubectl: put it as kubectl-baremetal into a directory of your
PATH. It finds the cluster by the flags that kubectl has, and uses your rights.
Nothing is changed but by drain and undrain, which set one annotation of a Node.

Where to begin:
  Something does not work         kubectl baremetal status, then doctor
  One address or Service          kubectl baremetal explain shop/web
  A node is to be rebooted        kubectl baremetal drain NODE --dry-run

What announcers decide is on their debug pages, which listen on the node's own
loopback only. They are read by port-forward, for which you need the right to
create pods/portforward in the namespace of the installation. Where that does not
work, --announcer-url http://{address}:7958 reaches announcers directly, if they
run with --debug-address 0.0.0.0:7958 (which shows much to the whole network).`

const examples = `  kubectl baremetal status
  kubectl baremetal doctor
  kubectl baremetal explain 192.0.2.100
  kubectl baremetal drain n1 --dry-run
  kubectl baremetal ui`

const statusHelp = `Show on one screen whether everything is served: who leads, how many announcers
are ready, which document is in force, how full the pools are, and each Service
that has no address or is announced by nobody, with the reason.

It takes the rights to list Services, Nodes, Namespaces, and to get ConfigMaps,
the Lease and the DaemonSet in the namespace of the installation. Announcers are
not asked.

Exit code: 0, also if Services are in trouble; 1 if the cluster cannot be read.`

const statusExamples = `  kubectl baremetal status
  kubectl baremetal status -o json | jq -r '.trouble[].service'`

const poolsHelp = `Show how full the pools are, and which Services wait for an address, and why.

  SIZE     addresses that can be given out, of that family
  USED     those that Services have
  WAITING  Services that would get one if the pool had room for them

It is worked out from the Services themselves and the document in force, so it
also works while no controller runs.

Exit code: 0, or 1 if the cluster cannot be read.`

const poolsExamples = `  kubectl baremetal pools
  kubectl baremetal pools -o json | jq -r '.pools[] | select(.free < 5) | .name'`

const servicesHelp = `Show the Services of type LoadBalancer that are ours: their addresses, whether
they were allocated and are announced, by which node and link, or why not.

ALLOCATED and ANNOUNCED are the reasons of the conditions
ccm-baremetal.io/Allocated and ccm-baremetal.io/Announced, WHY is the message of
the first that is not True, else of the second. With -n only Services of that
namespace are shown, else all.

Exit code: 0, or 1 if the cluster cannot be read.`

const servicesExamples = `  kubectl baremetal services
  kubectl baremetal services -n shop -o json`

const drainHelp = `Move all addresses away from a node, without loss, before it is rebooted or
repaired.

It sets the annotation ccm-baremetal.io/drain of the Node to true. The announcer
there tells the others, and goes on answering for each address until it has heard
the new owner's announcement; routers are told to prefer other nodes, and then
that the routes are gone. The command waits until nothing is announced any more.
An address that no other node could serve stays; --dry-run names those as well.

Pods are not touched: that is kubectl drain, which in turn moves no address.
Connections that exist are reset by the move, for connection tracking is per node.

The way back: kubectl baremetal undrain NODE

It takes the rights to get and patch Nodes, and port-forward to watch.

Exit code: 0 if the node is drained (or, with --dry-run or --wait=false, asked);
1 if it is not within --timeout, and the annotation stays.`

const drainExamples = `  # which addresses would move where?
  kubectl baremetal drain n1 --dry-run

  # do it, and reboot
  kubectl baremetal drain n1 && ssh n1 reboot
  kubectl baremetal undrain n1`

const undrainHelp = `Let a drained node announce again: it takes the annotation ccm-baremetal.io/drain
from the Node. The addresses that are the node's by the election move back, again
without loss.

Exit code: 0, or 1 if the Node cannot be changed.`

const doctorHelp = `Look for what keeps addresses from being announced, or will one day. Nothing is
changed. Run it before an installation, after it, and when something is wrong.

Each check has a verdict: ok; warn, if it works and may not be meant; fail, if
something does not work because of it; unknown, if it cannot be seen from here:
then it is said how to find out, and nothing is guessed.

  controller          does one lead
  announcers          are all ready; if none is, do some announce all the same
  configuration       is what was written in force
  exclude-label       which Nodes carry it, also with an empty value
  gossip              do all announcers see each other
  same-configuration  do all act on the document in force
  kube-proxy          IPVS without strictARP answers for every address
  ports               Pods on the host's network that have our ports
  rights              what our accounts may not do, and need
  other-products      MetalLB, kube-vip, PureLB, OpenELB, Cilium, k3s servicelb
  clocks              of Nodes, by their heartbeats
  rp_filter, mtu      of the links, as announcers see them
  bgp                 sessions with routers that are down, and why

It takes the rights to list Nodes, Pods and Leases, to get ConfigMaps and the
DaemonSet, to create SubjectAccessReviews, and port-forward to the announcers.
A check for which a right is missing is unknown.

With -o json: {"verdict": "warn", "checks": [{"name": "gossip", "verdict": "ok",
"seen": "3 announcers see each other", "do": ""}]}

Exit code: 0; 1 if a check failed or the API server cannot be reached.`

const doctorExamples = `  kubectl baremetal doctor
  kubectl baremetal doctor -o json | jq -r '.checks[] | select(.verdict == "fail")'`

const dumpHelp = `Write one archive for a bug report: the diagnosis of doctor, the debug pages of
all announcers, Services of type LoadBalancer, Nodes, EndpointSlices, our objects,
events, and the last lines of our logs.

Of Secrets only the names are asked for, no value leaves the API server. In
everything else what follows a name like password or token is masked, and so is
kubectl's copy of what was applied. What could not be read is listed in
errors.txt. Names and addresses are in it: read it before you send it.

Exit code: 0, also if parts could not be read; 1 if there is no archive.`

const dumpExamples = `  kubectl baremetal dump
  kubectl baremetal dump -f - | tar tzf -`

const uiHelp = `Serve a read-only status page on this machine: pools with their use, Services with
address, state, the node that announces them and since when, Nodes with why they
are left out, recent moves of addresses, members, and sessions with routers.

The page is made anew for each request, from the API server and one announcer
(by port-forward), with your rights. It listens on a loopback address only: whoever
can log in to this machine can see it. It needs no script, and loads nothing from
anywhere. End it with Ctrl-C.

Exit code: 0 when it is ended, 1 if it cannot listen.`

const uiExamples = `  kubectl baremetal ui
  kubectl baremetal ui --once > status.html`
