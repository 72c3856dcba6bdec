"""notebook_client.py URL CODE: run CODE as a cell of a new kernel, as JupyterLab does, and print what it prints.

Runs in the Python of a session of JupyterLab, which has what it needs. URL is what a person opens. The line `running`
is printed when the cell runs. The kernel stays, and so does the connection until this ends: a tab that is left open.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect


def message(kind: str, content: dict[str, Any]) -> str:
    """Return a message to the kernel's shell."""
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "username": "", "session": "tab", "version": "5.3"}
    return json.dumps(
        {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
    )


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


async def run(url: str, code: str) -> None:
    """Run the cell to its end; then keep the tab open until stdin ends."""
    parts = urlsplit(url)
    token = parse_qs(parts.query)["token"][0]
    base, headers = f"http://{parts.netloc}/api/kernels", {"Authorization": f"token {token}"}
    made = await AsyncHTTPClient().fetch(base, method="POST", body="{}", headers=headers)
    kernel = json.loads(made.body)["id"]
    channels = f"ws://{parts.netloc}/api/kernels/{kernel}/channels?session_id=tab"
    connection = await websocket_connect(HTTPRequest(channels, headers=headers))
    reply, is_idle = "", False
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    request = message("execute_request", content)
    await connection.write_message(request)
    # What the cell has printed comes by another way than the reply, which may be quicker; on that way, idle comes last.
    while not (reply and is_idle) and (text := await connection.read_message()) is not None:
        got = json.loads(text)
        kind, content = got["header"]["msg_type"], got["content"]
        if kind == "execute_input":
            say("running\n")
        elif kind == "stream":
            say(content["text"])
        elif kind == "error":
            say("\n".join(content["traceback"]))
        elif kind == "execute_reply":
            reply = content["status"]
        elif kind == "status" and got["parent_header"].get("msg_id") == json.loads(request)["header"]["msg_id"]:
            is_idle = content["execution_state"] == "idle"
    if reply:
        say(f"reply {reply}\n")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
