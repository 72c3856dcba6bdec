"""From a command line to a cluster, and back; backends only by their protocol."""
