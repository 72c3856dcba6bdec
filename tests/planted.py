"""Secrets of every form that people give to a launch, each with a word of its own, and a search for the words."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import secrets
import tarfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
from harness import Project

# Variables whose name, or whose value, says that it is a secret; `{}` is the word.
VARIABLES = {
    "API_KEY": "{}",
    "APIKEY": "{}",
    "AWS_SECRET_ACCESS_KEY": "{}",
    "DB_PASS": "{}",
    "GITHUB_PAT": "{}",
    "HF_TOKEN": "{}",
    "MYSQL_PWD": "{}",
    "PASSPHRASE": "{}",
    "SENTRY_DSN": "{}",
    "SLACK_WEBHOOK": "https://hooks.example.org/services/{}",
    "DATASET": "https://me:{}@data.example.org/set",
    "TABLE": "postgresql://me:{}@db.example.org/table",
    "SIGNED": "https://data.example.org/set?Expires=1&Signature={}",
    "PREPARED": "https://objectstorage.example.org/p/{}/n/space/b/bucket/o/object",
}
# Files beside the code that are nobody else's business.
FILES = (".env", ".netrc", "config.env", "deploy.key", "id_rsa", "keys/server.pem", ".aws/credentials")
ARGUMENT, REASON = "an argument", "a reason"
OF_NODES = "start scripts and what they run"
_LOOK_S = 0.05


class Planted:
    """The words, by the form in which each was given."""

    def __init__(self) -> None:
        """Make them up: nothing else on the machine has one."""
        self.words = {form: f"planted{secrets.token_hex(12)}" for form in (*VARIABLES, *FILES, ARGUMENT, REASON)}

    def add(self, form: str, word: str) -> None:
        """Look for *word*, too; a :class:`Watch` may be looking on."""
        self.words = {**self.words, form: word}

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a launch."""
        return {name: text.format(self.words[name]) for name, text in VARIABLES.items()}

    @property
    def argument(self) -> str:
        """An argument of the entry point."""
        return f"--from=https://me:{self.words[ARGUMENT]}@data.example.org/set"

    @property
    def failing(self) -> str:
        """The end of an entry point: an error whose words have a password."""
        return f"raise OSError('no way to https://me:{self.words[REASON]}@data.example.org')\n"

    def put_files(self, folder: Path) -> None:
        """Write the files beside the code in *folder*."""
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(self.words[name])

    def in_text(self, text: bytes | str) -> set[str]:
        """Return the forms whose words are in *text*."""
        text = text if isinstance(text, str) else text.decode(errors="replace")
        return {form for form, word in self.words.items() if word in text}

    def in_files(self, folders: Iterable[Path], known: Iterable[Path] = ()) -> dict[str, set[str]]:
        """Return the forms by each file below *folders* that has some: in its name, or inside, packed or not.

        Those *known* are not looked at.
        """
        left_out = set(known)
        found = {}
        for folder in folders:
            for path in folder.rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    forms = self.in_text(str(path))
                    if path.is_file() and not path.is_symlink() and path not in left_out:
                        forms |= {form for text in _texts(path.read_bytes()) for form in self.in_text(text)}
                    if forms:
                        found[str(path)] = forms
        return found


def _texts(content: bytes) -> Iterator[bytes]:
    """Yield *content*, and what is packed in it."""
    yield content
    if content[:2] == b"\x1f\x8b":
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as tar:
            for member in tar:
                yield member.name.encode()
                if (file := tar.extractfile(member)) is not None:
                    yield file.read()


class Watch:
    """What all processes of the machine show of planted words, looked at again and again."""

    def __init__(self, planted: Planted) -> None:
        """Look from the beginning of the context to its end."""
        self._planted = planted
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        #: Forms by the name of the program, in command lines and in environments; OF_NODES has what start scripts run.
        self.command_lines: dict[str, set[str]] = {}
        self.environments: dict[str, set[str]] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            for process in psutil.process_iter():
                with contextlib.suppress(OSError, psutil.Error):
                    words = process.cmdline()
                    if process.pid == os.getpid() or not words:
                        continue
                    name = _name_of(words)
                    if forms := self._planted.in_text("\0".join(words)):
                        self.command_lines.setdefault(name, set()).update(forms)
                    text = Path(f"/proc/{process.pid}/environ").read_bytes()
                    if forms := self._planted.in_text(text):
                        whose = OF_NODES if b"\0READY_FILE=" in b"\0" + text else name
                        self.environments.setdefault(whose, set()).update(forms)


def _name_of(words: list[str]) -> str:
    """Return what a process is: the first of its words that is neither an interpreter nor an option of one."""
    names = [Path(word).name for word in words]
    kept = [name for name in names if not (name.startswith(("-", "python")) or name in {"bash", "env", "sh"})]
    return (kept or names)[0]


def shown_of(project: Project, name: str, **environ: str) -> str:
    """Return all that the scripts show of the cluster *name*, but for the logs."""
    asked = (("list", "--all"), ("list", "--all", "--json"), ("status", name), ("status", name, "--json"))
    done = [project.run(*words, **environ) for words in asked]
    return "".join(each.stdout + each.stderr for each in done)
