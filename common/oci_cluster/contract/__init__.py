"""The agreement between node and launcher: ``common/README.md``, as code."""
