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
    Secrets with their passwords; with bgp.backend: frr-k8s instead the rights
    of manifests/bgp-frr-k8s
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
    Services, the file --record on the host, with bgp.backend: frr the files in
    --frr-dir, and with frr-k8s the FRRConfiguration of its node

To rehearse, --observe-only decides among the announcers that observe as well,
and announces and writes nothing. What a status shows and a pool has then counts
as confirmed where no ccm-baremetal has looked at the Service yet.

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
  announcer explain shop/web -o json

  # which addresses would move if node n1 drained
  announcer simulate --drain n1

  # which announcers this one sees
  announcer members

  # which routers it speaks with, and what it tells them
  announcer bgp`
