"""Somebody who has the script of a dry run, and an oci-cli that notes what it is asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unit.fake_oci import body_of
from unit.stub_program import write_program

# What stands in a file, is noted as if it stood in the word.
STUB_OCI = """import json, os, sys, time
words = [word for word in sys.argv[1:] if word != "--no-retry"]
command, options = " ".join(words[1:3]), {}
for option, text in zip(words[3:], words[4:]):
    if option.startswith("--"):
        options[option] = open(text[7:]).read() if text.startswith("file:///") else text
place = os.path.dirname(os.path.dirname(__file__))
with open(place + "/calls", "a") as calls:
    print(json.dumps([command, options, words]), file=calls)
answers = json.loads(os.environ["ANSWERS"])
for what in (command, command + " " + options.get("--display-name", "")):
    if what in answers["refused"]:
        sys.exit(answers["refused"][what])
def noted(name):
    return open(place + "/" + name).read().split() if os.path.exists(place + "/" + name) else []
if command == "job-run list" and "--job-id" in options:
    canceled, names = noted("canceled"), [name for name in noted("runs") if name not in answers["unlisted"]]
    names += [ocid[10:] for ocid in canceled if ocid[10:] in answers["unlisted"]]
    looks = sum(line.startswith('["job-run list"') and "--job-id" in line for line in open(place + "/calls"))
    state = ([""] + answers["state"].split())[:looks + 1][-1]
    if state == "-":
        sys.exit("no answer")
    states = {name: "CANCELED" if "ocid1.run." + name in canceled else state for name in names}
    lines = [" ".join(("ocid1.run." + name, states[name], name, answers["details"])) for name in names]
    print(json.dumps(lines, indent=2))
elif command == "job-run create":
    name = options["--display-name"]
    while name in answers["slow"] and not os.path.exists(place + "/go"):
        time.sleep(0.01)
    time.sleep(answers["slow_s"] if name in answers["slow"] else 0)
    with open(place + "/runs", "a") as runs:
        print(name, file=runs)
    print("ocid1.run." + name)
elif command == "job-run cancel":
    with open(place + "/canceled", "a") as canceled:
        print(options["--job-run-id"], file=canceled)
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
        write_program(self.place / "bin" / "oci", STUB_OCI)
        self.said = ""
        # A word for each look, the last one for all later ones too; - is no answer.
        self.state, self.details = "SUCCEEDED", ""
        self.cidr = "10.9.0.0/24"  # what oci-cli makes of the subnet
        self.refused: dict[str, str] = {}
        # Runs whose creation is answered so many seconds after the file `go` is there; those that a list lacks, until
        # they are canceled.
        self.slow: list[str] = []
        self.slow_s = 0.0
        self.unlisted: list[str] = []
        self._begun: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        """End what a test that failed has left: its oci-cli may wait for ever."""
        for process in self._begun:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def begin(self, script: str, *words: str) -> subprocess.Popen[str]:
        """Run *script* in a session of its own, as a terminal would have it."""
        for name in ("calls", "runs", "canceled", "go"):
            (self.place / name).unlink(missing_ok=True)
        (self.place / "my-launch.sh").write_text(script)
        said = {"job create": "ocid1.job", "subnet get": self.cidr}
        answers = {"refused": self.refused, "state": self.state, "details": self.details, "said": said}
        answers |= {"slow": self.slow, "slow_s": self.slow_s, "unlisted": self.unlisted}
        environ = {"PATH": f"{self.place}/bin:/usr/bin:/bin", "TMPDIR": f"{self.place}/tmp"}
        with (self.place / "said").open("w") as out:
            process = subprocess.Popen(
                ["bash", "my-launch.sh", *words],
                env={**environ, "ANSWERS": json.dumps(answers)},
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                start_new_session=True,
            )
        self._begun.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> int:
        """Return the exit code of a script that was begun; it leaves nothing."""
        printed, _ = process.communicate(timeout=60)
        assert printed == ""
        assert list((self.place / "tmp").iterdir()) == []
        self.said = (self.place / "said").read_text()
        return process.returncode

    def run(self, script: str, *words: str) -> int:
        """Run *script*; return its exit code."""
        return self.end(self.begin(script, *words))

    @property
    def calls(self) -> list[Call]:
        """What oci-cli has been asked so far; of a line that crosses a page of the file, half can be there."""
        calls = self.place / "calls"
        lines = calls.read_text().splitlines(keepends=True) if calls.exists() else []
        return [Call(*json.loads(line)) for line in lines if line.endswith("\n")]

    def sent(self, command: str) -> Sequence[Call]:
        return [call for call in self.calls if call.command == command]
