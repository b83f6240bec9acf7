"""What is real in a lab run: namespaces, processes, network, nginx, load and its exact counts.

Everything needs root. Errors that a user can cause are `errors.NodeError`: one line that says what to do.

    from agent.lab.node.node import Node
    from agent.lab.node.network import Cni
    from agent.lab.node.service import Endpoint
    from agent.lab.node.server import OnStop, ServerSettings, server_argv, shell_wrapped
    from agent.lab.node.ingress import Ingress
    from agent.lab.node.nginx_conf import IngressSettings
    from agent.lab.node.clients import LoadPlan
    from agent.lab.node.outcome import Outcome, FailedConnection, Via
    from agent.lab.node.probe import ProbeKind, ProbeTarget, ProbeResult

    with Node.start(Cni.BRIDGE) as node:                      # sweeps what dead runs left, claims addresses
        clients = node.client_namespace("clients")            # .addresses.v4, .addresses.v6, .path
        service = node.service("web", port=80)                # .v4, .v6 (str or None), .port
        pod = node.start_pod("web-1", uid=None)               # .uid, .addresses, .netns_path, pause runs
        app = pod.start_container(
            server_argv(ServerSettings(port=8080, on_stop=OnStop.DRAIN)), {"POD_NAME": "web-1"})
        # app.container_id (64 hex), app.pid (host), app.cgroup_path
        service.sync([Endpoint(pod.addresses, 8080)])          # one nft transaction; [] rejects
        ingress = Ingress.start(node, clients, [Endpoint(pod.addresses, 8080)], IngressSettings())
        ingress.reload([...])                                  # returns when the old worker stops accepting
        load = node.start_load(clients, LoadPlan(host=service.v4, port=80, via=Via.SERVICE, ...))
        app.stop_signal(signal.SIGTERM); app.wait(10.0)        # exit code, or -signal; None = still running
        app.exec_in(["/bin/sleep", "3"]).wait(10.0)            # a preStop exec hook
        app.kill()
        pod.kill_pause(); pod.remove_network(); pod.remove()   # the order of a real deletion
        load.wait(); load.result().failures                    # list[FailedConnection]
        ingress.stop(); ingress.failures()                     # the same record, per upstream connection
        prober = node.prober()                                 # process whose comm is `kubelet`
        prober.watch(ProbeTarget("web-1/app/readiness", ProbeKind.HTTP_GET, pod.addresses.v4, 8080,
                                 path="/readyz", period_s=1.0), on_result)
        prober.forget("web-1/app/readiness")

What is counted: one `FailedConnection` for every connection that failed, never one per request. `Outcome` is
REFUSED, TIMED_OUT, RESET, TRUNCATED, NO_ANSWER (connections of a pod), HTTP_ERROR (what an end user saw
through nginx), REJECTED (the Service had no endpoint: the node's own reject, no pod involved) and OWN_ERROR
(the client ran out of ports or descriptors: the run is void). `Outcome.of_a_pod` tells the first five apart.
DELAYED connections are in `LoadResult.delayed`, not among the failures: their first SYN went to a pod that
is gone, a later one to another. That happens on the routed network, where a SYN to a removed pod leaves no
connection tracking entry; on the bridge the choice sticks and the connection times out. So pods that are
gone were sent TIMED_OUT + DELAYED connections.

A kept-alive connection that ends while idle is no failure.
"""
