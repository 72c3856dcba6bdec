"""The table of settings, and what reads it."""
