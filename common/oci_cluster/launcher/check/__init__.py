"""``check.sh``: whether a launch can work."""
