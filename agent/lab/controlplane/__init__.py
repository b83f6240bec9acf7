"""A small control plane: an API server stand-in, and players for the kubelet, kube-proxy and the ingress.

`api.ApiServer` speaks the Kubernetes list and watch protocol over HTTP on loopback. The players act out what
a real node was recorded doing, on the pods, rules and processes of `agent.lab.node`.
"""
