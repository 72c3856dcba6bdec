"""Files of the cluster dir."""
