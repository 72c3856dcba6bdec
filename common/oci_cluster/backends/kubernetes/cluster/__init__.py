"""Clusters as Jobs and pods."""
