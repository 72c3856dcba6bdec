"""What a node's processes print, on its way to where it is read."""
