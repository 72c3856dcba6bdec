"""Kueue's quotas and queues."""
