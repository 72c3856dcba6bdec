"""A cluster while somebody follows it."""
