"""Jobs and their runs: requests, states, what a dry run prints."""
