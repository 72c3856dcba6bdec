"""Asks the process of ``warm.py`` to run a program with what this one was given, and ends as that has ended."""

import json
import os
import signal
import socket
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends, as a program does that says nothing
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    asked = {"words": sys.argv[2:], "directory": os.getcwd(), "environ": dict(os.environ)}  # noqa: PTH109 - without pathlib, which takes as long as the rest
    data = json.dumps(asked).encode() + b"\n"
    sent = socket.send_fds(server, [data], [0, 1, 2])
    server.sendall(data[sent:])
    code = server.recv(1)
sys.exit(code[0] if code else 137)
