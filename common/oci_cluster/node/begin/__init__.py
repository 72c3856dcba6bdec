"""Begin of a node: rank, address, code, generation."""
