"""Every command of the pages can be given: scripts, options, targets and settings are there, and each block is run.

A block of commands stands behind a comment that says who runs it: ``<!-- run by tests/...::test_... -->``, or what it
needs that no test has: ``<!-- needs a tenancy -->``. A block of settings alone needs none.
"""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import FENCE, ROOT, files, pages, prose

from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import framework_defaults

# What people need for a block that no test runs. Developers' own blocks need what CONTRIBUTING.md says.
NEEDS = {
    "a tenancy",
    "a Kubernetes",
    "a registry",
    "a container engine",
    "several GPUs",
    "terraform",
    "the tools of developers",
}
MARK = re.compile(r"<!-- (?:run by (?P<by>tests/\S+(?:, tests/\S+)*)|needs (?P<needs>[\w ]+)) -->\n\Z")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# Programs of others, whose words no header of ours tells.
OTHERS = {
    "cd",
    "chmod",
    "cp",
    "docker",
    "echo",
    "eval",
    "git",
    "kubectl",
    "mkdir",
    "oci",
    "printf",
    "python",
    "rm",
    "scp",
    "ssh",
    "several GPUs",
    "terraform",
}
# Variables of make and of others' programs.
VARIABLES = {
    "ARGS",
    "BACKEND",
    "FRAMEWORKS",
    "N",
    "PYTHON",
    "PYTHONPATH",
    "SEED",
    "TEST_JOBS",
    "TEST_TIMES",
    "TMPDIR",
    "UV",
}
# Pages about the project's own tests, whose commands are in words.
NOT_FOR_USERS = ("tests/", "CHANGELOG.md")


@functools.cache
def header(script: str) -> str:
    """Return the help of scripts/*script*, which is its first comment."""
    lines = (ROOT / "scripts" / script).read_text(encoding="utf-8").splitlines()[1:]
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), lines))


@functools.cache
def targets() -> frozenset[str]:
    """Return what ``make`` can be told to make."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    shared = (ROOT / "scripts" / "clusters.mk").read_text(encoding="utf-8")
    (of_clusters,) = re.findall(r"^clusters_all := ([a-z -]+) \$", shared, re.MULTILINE)
    names = {*re.findall(r"^([a-z-]+):", text + shared, re.MULTILINE), *of_clusters.split()}
    frameworks = [path.parent.name for path in ROOT.glob("*/Dockerfile")]
    return frozenset(names | {f"{verb}-{framework}" for verb in ("build", "push") for framework in frameworks})


@functools.cache
def settings() -> frozenset[str]:
    """Return every name that an environment, config.env or make's command line may give."""
    found = {*SETTINGS, *VARIABLES, *re.findall(r"\$\(([A-Z]+)\)", (ROOT / "Makefile").read_text(encoding="utf-8"))}
    for path in ROOT.glob("*/settings.env"):
        found |= set(framework_defaults(path.parent))
    return frozenset(found)


@functools.cache
def own_programs() -> frozenset[str]:
    """Return the names of all scripts of the project, which a page may call by their names alone."""
    return frozenset(path.name for path in files() if path.suffix == ".sh")


def wrong_words(words: list[str]) -> Iterator[str]:
    """Yield what is wrong with the *words* of one command."""
    while words and ASSIGNMENT.match(words[0]):
        name = words.pop(0).partition("=")[0]
        if name.isupper() and name not in settings():
            yield f"{name} is no setting"
    if not words:
        return
    program, *rest = words
    script = re.fullmatch(r"(?:\./)?(?:scripts/)?([a-z-]+\.sh)", program)
    if script and (ROOT / "scripts" / script[1]).is_file():
        yield from _wrong_options(script[1], rest)
    elif program == "make":
        yield from _wrong_targets(rest)
    elif (
        Path(program).name not in OTHERS | own_programs()
        and not (ROOT / program).exists()
        and program != ".venv/bin/python"
    ):
        yield f"there is no {program}"


def _wrong_options(script: str, words: list[str]) -> Iterator[str]:
    text = header(script)
    for word in words[: words.index("--") if "--" in words else len(words)]:
        if re.match(r"--?[a-z]", word) and not re.search(
            rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", text
        ):
            yield f"{script} has no option {word.partition('=')[0]}"
    is_named = script in {"launch.sh", "setup.sh"} and re.fullmatch(r"[a-z]+", words[0] if words else "")
    if is_named and words[0] != "jax" and not (ROOT / words[0] / "start-master.sh").exists():
        yield f"there is no framework {words[0]}"


def _wrong_targets(words: list[str]) -> Iterator[str]:
    for word in words:
        name = word.partition("=")[0]
        if "=" in word and name not in settings():
            yield f"{name} is no setting"
        # A user's own Makefile has ours under longer names.
        if "=" not in word and word.removeprefix("clusters-") not in targets():
            yield f"make has no target {word}"


def commands(block: str) -> list[str]:
    """Return the commands of a *block* of sh, each in one line."""
    return re.sub(r"\\\n\s*", " ", block).splitlines()


def words_of(line: str) -> list[str]:
    """Return the words of a command, up to what the shell makes of its output."""
    words = shlex.split(line, comments=True)
    ends = [number for number, word in enumerate(words) if re.match(r"[|>&]|[<]", word)]
    return words[: ends[0]] if ends else words


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each block of commands of a page, with its mark."""
    for found in FENCE.finditer(text):
        is_file = text[: found.start()].rstrip("\n").rpartition("\n\n")[2].startswith("**`")
        if found[2] in {"sh", "bash", "console"} and not is_file:
            mark = MARK.search(text, 0, found.start())
            yield found[3], mark[0].strip() if mark else ""


def is_settings(block: str) -> bool:
    """Whether a block has nothing but settings, as config.env has them."""
    return all(ASSIGNMENT.match(line) and " " not in line.split("#")[0].strip() for line in block.splitlines() if line)


def is_script(block: str) -> bool:
    """Whether a block is a file, or a script of oci-cli's commands, whose words no header of ours tells."""
    return block.startswith(("#!", "# administrator", "# you"))


def users_pages() -> dict[str, str]:
    return {name: text for name, text in pages().items() if not name.startswith(NOT_FOR_USERS)}


def wrong(name: str, text: str) -> Iterator[str]:
    """Yield a line for each command of page *name* that cannot be given."""
    for block, _ in blocks(text):
        for line in () if is_script(block) else commands(block):
            yield from (f"{name}: `{line.strip()}`: {why}" for why in wrong_words(words_of(line)))
    for code in re.findall(
        r"(?<!`)`((?:[A-Z_]+=\S+ )*(?:(?:\./)?(?:scripts/)?[a-z-]+\.sh|make) [^`]+)`(?!`)", prose(text)
    ):
        yield from (f"{name}: `{code}`: {why}" for why in wrong_words(words_of(code.replace("\n", " "))))


def unmarked(name: str, text: str) -> Iterator[str]:
    """Yield a line for each block of page *name* of which nobody knows whether it works."""
    for block, mark in blocks(text):
        first = block.partition("\n")[0]
        if is_settings(block) or block.startswith("#!"):
            continue
        found = MARK.fullmatch(f"{mark}\n")
        if found is None:
            yield f"{name}: `{first}`: no comment says who runs it, or what it needs"
        elif found["needs"] and found["needs"] not in NEEDS:
            yield f"{name}: `{first}`: needs {found['needs']}: known are {', '.join(sorted(NEEDS))}"
        for by in (found["by"] or "").split(", ") if found else ():
            file, _, test = by.partition("::")
            if by and not (
                (ROOT / file).is_file() and (not test or f"def {test}(" in (ROOT / file).read_text("utf-8"))
            ):
                yield f"{name}: `{first}`: there is no {by}"


def test_every_command_of_the_pages_can_be_given() -> None:
    """In blocks and in words: scripts have these options, make these targets, settings these names."""
    assert [line for name, text in users_pages().items() for line in wrong(name, text)] == []


def test_every_block_of_commands_is_run_or_says_what_it_needs() -> None:
    """By a test that is there, or for a reason that is known."""
    found = users_pages()
    assert sum(len(list(blocks(text))) for text in found.values()) > 40
    assert [line for name, text in found.items() for line in unmarked(name, text)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\n./scripts/launch.sh dask 3 --etnry a.py -- --epochs 1\n```\n", "launch.sh has no option --etnry"),
        ("```sh\n./scripts/launch.sh dusk 3\n```\n", "there is no framework dusk"),
        ("```sh\nmake biuld push\n```\n", "make has no target biuld"),
        ("```sh\nmake build REGISTRI=a\n```\n", "REGISTRI is no setting"),
        ("```sh\nBAKEND=oci ./scripts/launch.sh dask 3\n```\n", "BAKEND is no setting"),
        ("```sh\n./scripts/launc.sh dask 3 # three\n```\n", "there is no ./scripts/launc.sh"),
        ("Give `stop.sh --detele NAME`.", "stop.sh has no option --detele"),
        ("Give `make tset`.", "make has no target tset"),
    ],
)
def test_wrong_commands_are_named(text: str, said: str) -> None:
    """Also those that stand in words; never what belongs to the user's own script."""
    (line,) = wrong("a.md", text)
    assert line.endswith(f": {said}")


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("", "no comment says who runs it, or what it needs"),
        ("<!-- run by tests/nobody.py -->\n", "there is no tests/nobody.py"),
        ("<!-- run by tests/doc_pages.py::test_it -->\n", "there is no tests/doc_pages.py::test_it"),
        ("<!-- needs luck -->\n", "needs luck: known are "),
    ],
)
def test_blocks_that_nobody_runs_are_named(mark: str, said: str) -> None:
    """A test that is not there runs nothing."""
    (line,) = unmarked("a.md", f"Words.\n\n{mark}```sh\nmake lint\n```\n")
    assert f"`make lint`: {said}" in line
