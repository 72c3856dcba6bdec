"""Heartbeats: those that a node writes, and those that it reads."""
