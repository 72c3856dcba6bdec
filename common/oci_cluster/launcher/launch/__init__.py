"""A launch until its nodes start: plan, checks, entry point."""
