"""What node and launcher must agree on: ``common/README.md``, as code."""
