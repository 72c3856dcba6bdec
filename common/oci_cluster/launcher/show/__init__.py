"""What clusters are, and what their nodes have printed."""
