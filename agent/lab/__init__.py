"""Rolling updates on this machine: pods as network namespaces, a small control plane, real load."""
