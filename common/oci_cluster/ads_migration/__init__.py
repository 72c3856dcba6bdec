"""Conversion of the YAML of `ads opctl run` into settings and a launch."""
