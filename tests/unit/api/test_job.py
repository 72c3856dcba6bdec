"""Jobs: clusters that have a script."""

from __future__ import annotations

import pytest
from unit.api.conftest import Site

from oci_cluster.errors import UsageError


def test_a_job_is_its_script_and_its_cluster(site: Site) -> None:
    (site.root.parent / "train.py").touch()
    job = site.job(entry="train.py", arguments=["--epochs", 2], name="mine").submit()
    (plan,) = site.backend.plans.values()
    assert (plan.environment["ENTRY_POINT"], plan.environment["ARGS"], plan.environment["EPHEMERAL"]) == (
        "train.py",
        '["--epochs", "2"]',
        "1",
    )
    assert (job.name, job.status(), repr(job)) == (
        "mine",
        "IN_PROGRESS",
        "<Job plain on local: name='mine'>",
    )
    (launched,) = site.backend.clusters
    (launched.directory / "logs" / "MAIN.log").write_text("one\n")
    assert job.logs("MAIN", tail=1) == "MAIN | one\n"
    assert "\nMAIN " in job._repr_html_()
    site.ready("<script>alert(1)</script>\x1b[31m")
    assert "greeting: &lt;script&gt;alert(1)&lt;/script&gt;[31m" in job._repr_html_()
    site.end(0)
    assert (job.wait(60), job.details()["exit_code"], job.outputs) == (0, 0, "")
    job.follow("MAIN")
    job.cancel()


def test_a_job_without_a_script_is_none(site: Site) -> None:
    with pytest.raises(UsageError, match=r"a Job runs a script; name it: entry='train.py'"):
        site.job()
