"""Lists, states and logs of clusters."""
