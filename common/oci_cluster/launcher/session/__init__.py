"""Sessions: clusters whose entry point is a server for one person."""
