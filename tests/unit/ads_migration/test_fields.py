"""A file that somebody has been given: what it is made for, and what it must not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.ads_migration.fields import Field, read_yaml
from oci_cluster.errors import SettingsError


def read(folder: Path, text: str | bytes) -> Field:
    path = folder / "train.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def plain(field: Field) -> object:
    if isinstance(field.value, dict):
        return {name: plain(other) for name, other in field.value.items()}
    return [plain(item) for item in field.value] if isinstance(field.value, list) else field.value


def test_values_are_the_text_that_stands_there(tmp_path: Path) -> None:
    text = "a: 1e-3\nb: [yes, '07', 1_000]\nc:\nd: ~\ne: {f: False, g: 2024-01-01}\n"
    found = {"a": "1e-3", "b": ["yes", "07", "1_000"], "e": {"f": "False", "g": "2024-01-01"}}
    assert plain(read(tmp_path, text)) == found


def test_each_field_knows_its_path_and_line(tmp_path: Path) -> None:
    root = read(tmp_path, "a:\n  b:\n  - c: 1\n    d: 2\n")
    item = root.mapping()["a"].mapping()["b"].items()[0]
    assert (item.mapping()["d"].path, item.mapping()["d"].line) == ("a.b[0].d", 4)
    assert root.mapping()["a"].where == "line 1, a"


def test_merged_fields_count(tmp_path: Path) -> None:
    text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  a: 5\n  c:\nw: {<<: *x}\n"
    assert plain(read(tmp_path, text)) == {
        "x": {"a": "1", "b": "2"},
        "y": {"b": "3", "c": "4"},
        "z": {"a": "5", "b": "2"},
        "w": {"a": "1", "b": "2"},
    }


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {}\n" + "".join(
    f"{name}: &{name}\n  <<: [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "more than 5000 fields"),
        (MERGES, "more than 5000 fields"),
        ("a: &a [*a]\n", "more than 20 fields in one another"),
        ("a: &a\n  <<: *a\n", "more than 20 fields in one another"),
        ("[" * 50_000, "deeper than 20 in one another"),
        ("a: " + "x" * 200_000, "more than 200000 bytes"),
        ("", "is empty"),
        ("a: 1\na: 2\n", "line 2: the file has a twice"),
        ("? [a]\n: 1\n", "the name of a field is a text"),
        ("a:\n  <<: 1\n", "line 2, a: expected fields of its own"),
        ("a: b: c\n", "is no YAML: mapping values are not allowed here"),
        ("a: *nobody\n", "is no YAML: found undefined alias"),
        ("--- a\n--- b\n", "is no YAML: expected a single document"),
        (b"a: \xff\n", "is no YAML: 'utf-8' codec can't decode"),
        (b"a: \x00\n", "is no YAML: unacceptable character"),
    ],
)
def test_what_is_no_description_is_refused(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert why in str(caught.value)


def test_a_tag_makes_no_object(tmp_path: Path) -> None:
    text = "a: !!python/object/apply:os.system ['touch made']\n"
    assert plain(read(tmp_path, text)) == {"a": ["touch made"]}
    assert not (tmp_path / "made").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"train\.yaml cannot be read: No such file"):
        read_yaml(tmp_path / "train.yaml")
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)
