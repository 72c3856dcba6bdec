"""A launch until its nodes have been started: the plan, its checks, the entry point."""
