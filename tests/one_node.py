"""What tests of clusters of one node share: each framework's example, and a script that ends with 7, on main alone."""

from __future__ import annotations

import re

from harness import Project

# Arguments of each example that make it short, and what it prints at its end.
EXAMPLES = {
    "dask": ([], r"on the test images: 0\.9911"),
    "pytorch": (["--epochs", "2"], r"epoch +2 .* world size 1$"),
    "tensorflow": (["--epochs", "2"], r"epoch +2 .* world size 1$"),
    "horovod": (["--epochs", "2"], r"epoch +2 .* ranks 1$"),
    "ray": (["--epochs", "2"], r"epoch +2 .* workers 1$"),
}


def assert_runs_alone(project: Project, framework: str, patience_s: float, **environ: str) -> None:
    """Launch *framework* with 0 workers: its example gives its result and 0; a script that ends with 7 gives 7."""
    options, result = EXAMPLES[framework]
    launch = project.launch(framework, "0", "--name", "alone", "--", *options, **environ)
    assert launch.wait(patience_s) == 0, launch.err + launch.out
    assert re.search(result, launch.out, re.MULTILINE), launch.out
    assert "cluster alone started: 1 node; " in launch.err
    assert {line.partition(" |")[0] for line in launch.out.splitlines()} == {"MAIN"}
    entry = project.write("seven.py", "import sys\nsys.exit(7)\n")
    launch = project.launch(framework, "0", "--entry", entry, **environ)
    assert launch.wait(patience_s) == 7, launch.err + launch.out
