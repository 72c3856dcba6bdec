"""The backend ``local``: nodes are process trees of this machine."""
