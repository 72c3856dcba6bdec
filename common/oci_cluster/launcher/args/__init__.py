"""What people type: options, the headers of scripts as help, completion."""
