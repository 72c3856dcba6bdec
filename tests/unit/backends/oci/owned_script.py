"""Somebody who has the script of a dry run, and an oci-cli that notes what it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unit.fake_oci import body_of

# What stands in a file, is noted as if it stood in the word.
STUB_OCI = """#!{python}
import json, os, sys
words = [word for word in sys.argv[1:] if word != "--no-retry"]
command, options = " ".join(words[1:3]), {{}}
for option, text in zip(words[3:], words[4:]):
    if option.startswith("--"):
        options[option] = open(text[7:]).read() if text.startswith("file:///") else text
place = os.path.dirname(os.path.dirname(__file__))
with open(place + "/calls", "a") as calls:
    print(json.dumps([command, options, words]), file=calls)
answers = json.loads(os.environ["ANSWERS"])
if command in answers["refused"]:
    sys.exit(answers["refused"][command])
if command == "job-run list" and "--job-id" in options:
    runs = [line.split() for line in open(place + "/runs")] if os.path.exists(place + "/runs") else []
    lines = [" ".join((ocid, answers["state"], name, answers["details"])) for ocid, name in runs]
    print(json.dumps(lines, indent=2))
elif command == "job-run create":
    ocid = "ocid1.run." + options["--display-name"]
    with open(place + "/runs", "a") as runs:
        print(ocid, options["--display-name"], file=runs)
    print(ocid)
else:
    print(answers["said"].get(command, ""))
"""


@dataclass(frozen=True)
class Call:
    """One command of oci-cli."""

    command: str
    options: dict[str, str]
    words: list[str]

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request that the options stand for."""
        texts = {name: text for name, text in self.options.items() if name not in {"--query", "--raw-output"}}
        job = {"jobId": texts.pop("--job-id")} if "--job-id" in texts else {}
        return {**job, **body_of([word for pair in texts.items() for word in pair])}


class Owner:
    """Somebody who runs a script in a folder of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place / "a folder of somebody"
        for name in ("bin", "tmp"):
            (self.place / name).mkdir(parents=True)
        stub = self.place / "bin" / "oci"
        stub.write_text(STUB_OCI.format(python=sys.executable))
        stub.chmod(0o755)
        self.said = ""
        self.calls: list[Call] = []
        self.state, self.details = "SUCCEEDED", ""
        self.refused: dict[str, str] = {}

    def run(self, script: str, *words: str) -> int:
        """Run *script*; return its exit code."""
        for name in ("calls", "runs"):
            (self.place / name).unlink(missing_ok=True)
        (self.place / "my-launch.sh").write_text(script)
        said = {"job create": "ocid1.job", "subnet get": "10.9.0.0/24"}
        answers = {"refused": self.refused, "state": self.state, "details": self.details, "said": said}
        done = subprocess.run(
            ["bash", "my-launch.sh", *words],
            env={
                "PATH": f"{self.place}/bin:/usr/bin:/bin",
                "TMPDIR": f"{self.place}/tmp",
                "ANSWERS": json.dumps(answers),
            },
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == ""
        assert list((self.place / "tmp").iterdir()) == []
        calls = self.place / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        self.calls = [Call(*json.loads(line)) for line in lines]
        self.said = done.stderr
        return done.returncode

    def sent(self, command: str) -> Sequence[Call]:
        return [call for call in self.calls if call.command == command]
