"""Command lines: options, the headers of scripts as help, completion."""
