# What the nodes of the ladder run: a program for their image's own Python, which tells what it sees in WORK_DIR.
# It is sent as a variable; the interpreter needs fsspec, ocifs and psutil, which every image of this project has.
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import fsspec
import psutil

started = time.time()
files, path = fsspec.url_to_fs(os.environ["SMOKE_URL"])
name = f"{os.environ['SMOKE_NAME']}-{uuid.uuid4().hex[:8]}"
facts = {"started": started, "name": os.environ["SMOKE_NAME"], "id": name}


def tell(**more):
    facts.update(more)
    files.pipe_file(f"{path}/{name}.json", json.dumps(facts).encode())


def told(kind):
    while True:
        files.invalidate_cache()
        try:
            names = [entry for entry in files.ls(path, detail=False) if f"/{kind}-" in entry]
            return [json.loads(files.cat_file(entry)) for entry in names]
        except FileNotFoundError:
            return []
        except ValueError:
            # ocifs asks for the size first: what is told anew between that and the bytes comes cut off.
            time.sleep(0.1)


def own_address():
    if os.environ.get("NODE_ADDRESS"):
        return os.environ["NODE_ADDRESS"]
    found = [
        ipaddress.ip_address(entry.address)
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET
    ]
    blocks = [ipaddress.ip_network(one) for one in (os.environ.get("SUBNET_CIDR") or "0.0.0.0/0").split(",")]
    fitting = (address for address in found if any(address in block for block in blocks))
    return str(next(address for address in fitting if not address.is_loopback))


def nodes():
    try:
        listed = json.loads(Path(os.environ["CLUSTER_NODES_METADATA_FILE"]).read_text())
        return [(int(node["Rank"]), node["IPAddress"]) for node in listed]
    except (KeyError, OSError, ValueError, TypeError):
        return []


def stay(seconds):
    until = time.time() + seconds
    while time.time() < until:
        tell(beat=time.time())
        time.sleep(0.5)
    tell(done=True)


def on_term(*_):
    if "term" not in facts:
        tell(term=time.time())


def report():
    paths = [os.environ.get(f"OCI_RESOURCE_PRINCIPAL_{part}", "") for part in ("RPST", "PRIVATE_PEM")]
    tell(
        arguments=sys.argv[1:],
        uid=os.getuid(),
        version=os.environ.get("OCI_RESOURCE_PRINCIPAL_VERSION", ""),
        readable=[Path(name).is_absolute() and os.access(name, os.R_OK) for name in paths],
    )
    subprocess.Popen(["sleep", "600"], start_new_session=True)


def wait():
    print("smoke waits", flush=True)
    signal.signal(signal.SIGTERM, on_term)
    stay(480)


def meet():
    own = own_address()
    if os.environ["SMOKE_NAME"] == "first":
        server = socket.create_server((own, 8786))
        server.settimeout(300)
        tell(address=own)
        tell(peer=server.accept()[1][0])
    else:
        until = time.time() + 300
        while time.time() < until:
            address = next((node.get("address") for node in told("first")), None)
            if address:
                socket.create_connection((address, 8786), timeout=60).close()
                tell(reached=address)
                break
            time.sleep(0.5)
    for number in range(20):
        print("smoke", os.environ["SMOKE_NAME"], number, flush=True)


def group():
    signal.signal(signal.SIGTERM, on_term)
    is_main = os.environ["SMOKE_NAME"] == "main"
    tell(rank=os.environ.get("NODE_RANK", ""), run=os.environ.get("JOB_RUN_OCID", ""), sizes=[len(nodes())])
    if is_main:
        time.sleep(float(os.environ["SMOKE_READY_S"]))
        tell(ready=time.time())
        Path(os.environ.get("TMPDIR", "/tmp"), "smoke-ready").touch()
    if os.environ["SMOKE_DO"] == "group-fails" and not is_main:
        sys.exit(5)
    until = time.time() + 300
    while len(nodes()) < 3 and len(told("worker")) < 2 and time.time() < until:
        if len(nodes()) != facts["sizes"][-1]:
            tell(sizes=[*facts["sizes"], len(nodes())])
        time.sleep(0.2)
    tell(sizes=[*facts["sizes"], len(nodes())], nodes=nodes())
    if is_main:
        while len(told("worker")) < 2 and time.time() < until:
            time.sleep(0.5)
        tell(left=True)
        return
    seen = told("worker")
    while len(seen) < 2 and time.time() < until:
        time.sleep(0.2)
        seen = told("worker")
    # Of two workers one is enough: the other stays, and is to be ended. Which it is, one look at both decides.
    firsts = sorted((node["started"], node["id"]) for node in seen)
    tell(seen=firsts)
    if firsts[0][1] != name:
        stay(480)
    else:
        tell(left=True)


{"report": report, "wait": wait, "meet": meet, "group": group, "group-fails": group}[os.environ["SMOKE_DO"]]()
