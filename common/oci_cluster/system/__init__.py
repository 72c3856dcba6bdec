"""This machine's programs and files. Knows no cluster."""
