"""Ways from this machine to a cluster's ports."""
