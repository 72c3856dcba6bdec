"""Projects of users: made from this checkout, and updated. Standard library only."""
