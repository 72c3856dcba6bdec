"""What an administrator allows sessions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import plan_of

from oci_cluster.errors import NotPermittedError, SettingsError
from oci_cluster.launcher.session.policy import check_policy

ROOT = Path(__file__).resolve().parents[4]


def check(root: Path, policy: str, settings: dict[str, str] | None = None, **environment: str) -> None:
    path = root / "scripts" / "sessions" / "policy.env"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(policy)
    plan = plan_of(root, "mine", "1f2e3d4c", workers=1)
    given = {"TTL": "8h", "IDLE_LIMIT": "1h", "WORKER_COUNT": "1", **environment}
    check_policy(replace(plan, settings=settings or {}, environment=given), root)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("", {}),
        ("MAX_TTL=8h\nMAX_IDLE_LIMIT=60m\nMAX_WORKERS=1\n", {}),
        ("MAX_CPUS=2\nMAX_MEMORY=4g\nMAX_GPUS=0\n", {"CPUS": "2", "MEMORY": "4096m", "GPUS": ""}),
        ("MAX_CPUS=2\nMAX_OCPUS=1\nALLOWED_SHAPES=A\n", {}),
        ("MAX_OCPUS=4\nMAX_MEMORY_GBS=64\n", {"OCPUS": "", "MEMORY_GBS": "", "MAIN_OCPUS": "", "SHAPE": "A"}),
        ("ALLOWED_SHAPES=A,B\n", {"SHAPE": "B", "MAIN_SHAPE": "", "WORKER_SHAPE": "A"}),
    ],
)
def test_what_is_within_it_is_allowed(tmp_path: Path, policy: str, settings: dict[str, str]) -> None:
    """Up to the limit itself; another backend's settings are not looked for."""
    check(tmp_path, policy, settings)


@pytest.mark.parametrize(
    ("policy", "settings", "environment", "said"),
    [
        ("MAX_TTL=7h", {}, {}, "TTL=8h is more than 7h"),
        ("MAX_TTL=7h", {}, {"TTL": "0"}, "TTL=0 is more than 7h"),
        ("MAX_IDLE_LIMIT=30m", {}, {"IDLE_LIMIT": "0"}, "IDLE_LIMIT=0 is more than 30m"),
        ("MAX_WORKERS=0", {}, {}, "WORKER_COUNT=1 is more than 0"),
        ("MAX_CPUS=2", {"CPUS": "2.5"}, {}, "CPUS=2.5 is more than 2"),
        ("MAX_CPUS=2", {"CPUS": ""}, {}, "CPUS is not set, which is no limit, and 2 is the most"),
        ("MAX_MEMORY=4g", {"MEMORY": "5000m"}, {}, "MEMORY=5000m is more than 4g"),
        ("MAX_GPUS=1", {"GPUS": "all"}, {}, "GPUS=all is more than 1"),
        ("MAX_OCPUS=3", {"OCPUS": ""}, {}, "OCPUS=4 is more than 3"),
        ("MAX_OCPUS=3", {"OCPUS": "1", "MAIN_OCPUS": "8"}, {}, "MAIN_OCPUS=8 is more than 3"),
        ("ALLOWED_SHAPES=A,B", {"SHAPE": "C"}, {}, "SHAPE=C is none of A, B"),
    ],
)
def test_what_is_beyond_it_is_refused(
    tmp_path: Path, policy: str, settings: dict[str, str], environment: dict[str, str], said: str
) -> None:
    """With value and limit."""
    with pytest.raises(NotPermittedError) as caught:
        check(tmp_path, policy, settings, **environment)
    asks = f"; for more ask whoever keeps {tmp_path}/scripts/sessions/policy.env"
    assert str(caught.value) == f"the policy of sessions does not allow this: {said}{asks}"


def test_all_that_is_beyond_it_is_said_at_once(tmp_path: Path) -> None:
    """And whom to ask."""
    with pytest.raises(NotPermittedError, match=r"TTL=8h is more than 1h; SHAPE=C is none of A; for more ask ops@here"):
        check(tmp_path, "MAX_TTL=1h\nALLOWED_SHAPES=A\nASK=ops@here\n", {"SHAPE": "C"})


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("MAX_TLL=1h", "MAX_TLL is no rule; the rules are MAX_TTL, "),
        ("MAX_TTL=soon", "MAX_TTL: 'soon' is not a duration"),
        ("MAX_MEMORY=much", "MAX_MEMORY: 'much' is not a size such as 4g"),
        ("MAX_CPUS=-1", "MAX_CPUS: '-1' is not a number"),
    ],
)
def test_a_policy_that_cannot_be_used_allows_nothing(tmp_path: Path, policy: str, said: str) -> None:
    """A slip in it must not lift a limit."""
    with pytest.raises(SettingsError, match=f"policy.env: {said}"):
        check(tmp_path, policy, {"MEMORY": "1g", "CPUS": "1"})


def test_the_policy_of_the_checkout_names_every_rule_and_sets_none() -> None:
    """Who copies the checkout is bound by nothing that nobody has decided."""
    lines = (ROOT / "scripts" / "sessions" / "policy.env").read_text().splitlines()
    names = [line.removesuffix("=") for line in lines if line and not line.startswith("#")]
    assert names == [
        *("MAX_TTL", "MAX_IDLE_LIMIT", "MAX_WORKERS", "MAX_CPUS", "MAX_MEMORY", "MAX_GPUS"),
        *("MAX_OCPUS", "MAX_MEMORY_GBS", "ALLOWED_SHAPES", "ASK"),
    ]
