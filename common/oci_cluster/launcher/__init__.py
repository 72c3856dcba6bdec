"""From a command line to a cluster, and back to a person. Knows backends by their protocol only."""
