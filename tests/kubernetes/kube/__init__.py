"""A real Kubernetes for tests, with Kueue and real nodes, in namespaces that end with whoever made them."""
