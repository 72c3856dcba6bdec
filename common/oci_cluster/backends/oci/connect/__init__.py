"""Ways to the ports of nodes: direct, or by a bastion."""
