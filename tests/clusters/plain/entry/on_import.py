"""Changes nothing: there is no framework."""

MODULE = ""
