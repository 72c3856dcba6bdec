"""Output of a node's processes, on its way to where it is read."""
