"""Python environments."""
