"""The backend ``docker``: nodes are containers of an engine."""
