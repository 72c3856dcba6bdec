"""A user's own project: what of this checkout goes into it, and how it takes a newer version. Standard library only."""
