"""The Python API: clusters and jobs as objects. What they do is what the verbs do; no node imports it."""
