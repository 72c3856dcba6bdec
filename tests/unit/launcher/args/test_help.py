"""What a program reads in the header of a script."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from unit.launcher.args.test_command_line import VERBS

from oci_cluster.launcher.args.command_line import read
from oci_cluster.launcher.args.help import Header, Operand, read_header

SCRIPTS = Path(__file__).resolve().parents[4] / "scripts"
HEADER = """#!/usr/bin/env bash
# Usage: try.sh show [--json]
#        try.sh apply teams.yaml [--dry-run] [--out DIR]
#        try.sh run --log FILE [NAME...]
#            [more|less] <framework>
#
# Try it. --not-one FILE  is in a sentence.
#
#   NAME             no option
#   -o, --out DIR    where to
#   --log FILE       what is written
#   --backend NAME   where it runs
#   --wait-for-quota DURATION
#                    so long
#   --json           print JSON
#       --deep X     a part of what is above
set -e
#   --late           is not in the header
"""


def header(tmp_path: Path, text: str = HEADER) -> Header:
    path = tmp_path / "try.sh"
    path.write_text(text)
    return read_header(path)


def test_options_have_what_they_take_and_what_is_said_of_them(tmp_path: Path) -> None:
    """An option's own name says it where the word is NAME."""
    found = [(name, one.value and one.value.kind, one.text) for name, one in header(tmp_path).options.items()]
    assert found == [
        ("--out", "folder", "where to"),
        ("--log", "file", "what is written"),
        ("--backend", "backend", "where it runs"),
        ("--wait-for-quota", "", ""),
        ("--json", None, "print JSON"),
    ]


def test_each_way_of_calling_has_its_operands(tmp_path: Path) -> None:
    """The value of an option is no operand; a line that goes on is one."""
    show, apply, run = header(tmp_path).usages
    assert show == (Operand(choices=("show",)),)
    assert apply == (Operand(choices=("apply",)), Operand("file"))
    assert run == (
        Operand(choices=("run",)),
        Operand("cluster", is_repeated=True),
        Operand(choices=("more", "less")),
        Operand("framework"),
    )


def following(usage: str, words: str, tmp_path: Path) -> set[str]:
    found = header(tmp_path, f"#!\n# Usage: try.sh {usage}\n").next(words.split())
    return {operand.kind or "|".join(operand.choices) or "?" for operand in found}


@pytest.mark.parametrize(
    ("usage", "words", "found"),
    [
        ("<framework> <workers> [option...] [-- argument...]", "", {"framework"}),
        ("<framework> <workers> [option...] [-- argument...]", "dask", {"?"}),
        ("<framework> <workers> [option...] [-- argument...]", "dask 3", set()),
        ("<framework> <workers>", "dask 3 more", set()),
        ("[FRAMEWORK [WORKERS]] [OPTION...] [-- ARGUMENT...]", "dask 3", set()),
        ("[NAME]", "", {"cluster"}),
        ("[NAME...]", "a b", {"cluster"}),
        ("<framework...> <dir>", "", {"framework"}),
        ("<framework...> <dir>", "dask", {"framework", "folder"}),
        ("<framework...> <dir>", "dask ray", {"framework", "folder"}),
        ("<build|push> [framework...] [--to-push]", "", {"build|push"}),
        ("<build|push> [framework...] [--to-push]", "size", set()),
        ("<build|push> [framework...] [--to-push]", "push dask", {"framework"}),
        ("[python|node|go ...]", "node", {"python|node|go"}),
        ("hold TEAM", "hold", {"?"}),
        ("hold TEAM", "show", set()),
        ("train.yaml", "", {"file"}),
        ("[PATH|URL]", "", {"file"}),
        ("[FRAMEWORK...] --print | --tfvars", "", {"framework"}),
        ("", "", set()),
    ],
)
def test_what_may_stand_behind_what_is_there(usage: str, words: str, found: set[str], tmp_path: Path) -> None:
    assert following(usage, words, tmp_path) == found


def test_a_script_that_gives_a_name_takes_none_that_is_there(tmp_path: Path) -> None:
    """NAME is a new one then."""
    found = header(
        tmp_path, "#!\n# Usage: try.sh [NAME]\n#\n#   --name NAME    its name\n#   --in CLUSTER   beside it\n"
    )
    assert found.usages == ((Operand(),),)
    assert [one.value.kind for one in found.options.values() if one.value] == ["", "cluster"]


@pytest.mark.parametrize("text", ["", "#!\n", "#!\n# Does things.\n", "#!\n\n# Usage: try.sh NAME\n"])
def test_without_usage_nothing_is_known(text: str, tmp_path: Path) -> None:
    assert header(tmp_path, text) == Header((), {}, has_rest=False)


def test_a_script_that_is_none_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe")
    assert read_header(tmp_path / "binary.sh") == read_header(tmp_path / "none.sh") == Header((), {}, has_rest=False)


def examples(script: Path) -> list[list[str]]:
    """Return the words of the examples in a header, without what the shell does with them, and what is said of them."""
    part = script.read_text(encoding="utf-8").partition("\n# Examples:\n")[2].partition("\n#\n")[0]
    commands = [re.split(r" {2,}| [|>]", line.removeprefix("#   "))[0] for line in part.splitlines()]
    return [shlex.split(command.partition(script.name)[2]) for command in commands if script.name in command]


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_in_the_help_of_a_verb_are_what_it_takes(verb: str) -> None:
    found = examples(SCRIPTS / f"{verb}.sh")
    assert found
    for words in found:
        read(verb, words)
