"""What a node finds out before its start script: rank, address, code, generation."""
