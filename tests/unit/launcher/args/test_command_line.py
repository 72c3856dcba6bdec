from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from oci_cluster.backends import known_backends
from oci_cluster.errors import UsageError
from oci_cluster.launcher.args.command_line import CommandLine, options_of, parse

SCRIPTS = Path(__file__).resolve().parents[4] / "scripts"


# --- What was typed -------------------------------------------------------------------------------------------------


def refusal(verb: str, *words: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(verb, words)
    return str(caught.value)


VERBS = ("launch", "check", "session", "status", "list", "logs", "stop", "scale", "connect")
VERBS += ("quota", "queue", "setup", "from-ads", "new", "update")
OPTIONS = {
    verb: [f"{name}{'=' if takes_value else ''}" for name, takes_value in options_of(verb).items()] for verb in VERBS
}
VALUED = {verb: [option.rstrip("=") for option in options if option.endswith("=")] for verb, options in OPTIONS.items()}
PLAIN = {verb: [option for option in options if not option.endswith("=")] for verb, options in OPTIONS.items()}


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_takes_any_value(verb: str) -> None:
    """One that looks like an option included; words before and after it stay words; joined with = it is the same."""
    for option, value in itertools.product(VALUED[verb], ["a b", "a=b", "--json", "-1", "--"]):
        line = parse(verb, ["one", option, value, "two"])
        assert (line.words, line.given, line.rest) == (["one", "two"], {option: [value]}, None)
        assert (line.value(option), line.has(option)) == (value, True)
        assert parse(verb, ["one", f"{option}={value}", "two"]) == line


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_empty_value_is_not_taken_for_one_that_was_left_out(verb: str) -> None:
    """It is that of a variable that is not set."""
    for option in VALUED[verb]:
        said = f"{option} was given an empty value; name one, or leave {option} out (oci_cluster --help says more)"
        assert (refusal(verb, option, ""), refusal(verb, f"{option}=")) == (said, said)


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_without_its_value_is_named(verb: str) -> None:
    """Where it stands last."""
    for option in VALUED[verb]:
        assert refusal(verb, "demo", option) == f"{option} needs a value (oci_cluster --help says more)"


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_without_a_value_leaves_the_next_word_alone(verb: str) -> None:
    """Wherever it stands."""
    for option in PLAIN[verb]:
        line = parse(verb, [option, "demo"])
        assert (line.words, line.has(option)) == (["demo"], True)
        assert parse(verb, ["demo", option]) == line


@pytest.mark.parametrize("verb", OPTIONS)
def test_what_is_no_option_of_the_verb_is_named(verb: str) -> None:
    """Nothing is guessed; its value, which may be a secret of the script's, is not shown."""
    for word in ("--nope", "-x", "-", "--jso", "-1x", "--1", "-1.5", "--token=secret"):
        name = word.partition("=")[0]
        advice = f"; if it is your script's, write -- before it: ... -- {name}" if verb in {"launch", "check"} else ""
        assert refusal(verb, "demo", word) == f"unknown option '{name}'{advice} (oci_cluster --help says more)"


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_without_a_value_takes_none(verb: str) -> None:
    """What somebody wants to say with it is not known."""
    for option in (option for option in PLAIN[verb] if option.startswith("--")):
        assert refusal(verb, f"{option}=0") == f"{option} takes no value, got '0' (oci_cluster --help says more)"


def test_the_script_is_named_as_the_one_that_tells_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name that a person typed."""
    monkeypatch.setenv("CLUSTER_PROGRAM", "stop.sh")
    assert refusal("stop", "--x") == "unknown option '--x' (stop.sh --help says more)"


def test_options_of_other_verbs_are_none_of_this_one() -> None:
    """Each verb knows its own."""
    assert refusal("status", "--delete").startswith("unknown option '--delete'")
    assert refusal("scale", "--json").startswith("unknown option '--json'")


@pytest.mark.parametrize("verb", ["launch", "scale"])
@pytest.mark.parametrize("number", ["-1", "-0", "-250"])
def test_a_negative_number_is_a_word(verb: str, number: str) -> None:
    """One worker less; too few to launch is said by who knows the limits."""
    assert parse(verb, ["demo", number]).words == ["demo", number]


@pytest.mark.parametrize("verb", ["status", "list", "logs", "stop"])
def test_elsewhere_a_negative_number_is_no_word(verb: str) -> None:
    """No cluster has such a name."""
    assert refusal(verb, "-1").startswith("unknown option '-1'")


@pytest.mark.parametrize("rest", [[], ["a", "b c", ""], ["--name", "x", "-h", "--help"], ["--", "-x"], ["-1"]])
def test_what_follows_two_dashes_is_the_entry_points(rest: list[str]) -> None:
    """Word by word, also what looks like ours; a bare -- is none, which is not the same as nothing said."""
    line = parse("launch", ["dask", "2", "--name", "mine", "--", *rest])
    assert (line.words, line.value("--name"), line.rest) == (["dask", "2"], "mine", rest)


def test_without_two_dashes_nothing_is_said_of_arguments() -> None:
    """Then ARGS of the environment counts."""
    assert parse("launch", ["dask", "2"]).rest is None


@pytest.mark.parametrize("verb", [verb for verb in OPTIONS if verb not in {"launch", "check"}])
def test_two_dashes_are_launchs_alone(verb: str) -> None:
    """Only a launch, and the check of one, have arguments of an entry point."""
    assert refusal(verb, "--", "demo").startswith("unknown option '--'")


def test_an_option_may_be_repeated() -> None:
    """Each --env counts, of the others the last."""
    line = parse("launch", ["--env", "A=1", "--ttl", "1h", "--env", "A=2", "--ttl", "2h"])
    assert (line.given["--env"], line.value("--ttl")) == (["A=1", "A=2"], "2h")


def header_options(script: Path) -> set[str]:
    """Return the options that a script's header explains, with = where they take a value."""
    found: set[str] = set()
    for text in re.findall(r"^#   (-[^ ].*?)(?:  |$)", script.read_text(), flags=re.MULTILINE):
        takes_value = re.search(r" [A-Z=]+$", text)
        names = [word.rstrip(",") for word in text.split() if word.startswith("-")]
        found |= {f"{name}=" if takes_value else name for name in names}
    return found


@pytest.mark.parametrize("verb", [verb for verb in OPTIONS if verb not in {"quota", "queue", "setup", "update"}])
def test_each_scripts_header_names_all_backends(verb: str) -> None:
    """One that is added is told of everywhere."""
    (said,) = re.findall(r"^#   --backend NAME +(.*)$", (SCRIPTS / f"{verb}.sh").read_text(), flags=re.MULTILINE)
    assert [name for name in known_backends() if name not in said] == []


@pytest.mark.parametrize("verb", OPTIONS)
def test_each_scripts_header_explains_the_options_that_there_are(verb: str) -> None:
    """No more, no fewer, and with a value where one is taken."""
    assert header_options(SCRIPTS / f"{verb}.sh") == {*OPTIONS[verb], "--version", "-h", "--help"}


def code_of(verb: str) -> list[str]:
    """Return the lines of a script that are no comments."""
    return [line for line in (SCRIPTS / f"{verb}.sh").read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("verb", [*OPTIONS, "images"])
def test_each_script_runs_the_verb_of_its_name(verb: str) -> None:
    """And hands on every word as it was typed; all else is the same: what is seen of one is seen of all."""
    *same, last = code_of(verb)
    assert last == f'run_verb {verb} "$@"'
    assert same == code_of("launch")[:-1]


def test_a_line_that_says_nothing_has_no_options() -> None:
    """Defaults count."""
    assert (CommandLine().has("--json"), CommandLine().value("--name", "x")) == (False, "x")
