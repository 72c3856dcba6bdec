"""The Python API: clusters and jobs as objects. No node imports it."""
