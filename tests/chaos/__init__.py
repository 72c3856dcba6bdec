"""Random faults on real clusters, by seed: ``python -m chaos`` (``make chaos``)."""
