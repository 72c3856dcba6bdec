"""What rungs stand on: the machine, the environment, the launches; and what is alike in most of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oci_cluster.system.envs.python_env import own_venv
from smoke_gpu.launching import ROOT, Launched, Launcher, NotHereError, RedError
from smoke_gpu.machine import Driver, Environment, environment

# As torch has them on CPUs: two, so that there is somebody to talk to.
_CPU_RANKS = 2


@dataclass
class Ground:
    """The machine, an environment, which the user has given for all frameworks or not, and launches.

    All *steps* share one.
    """

    driver: Driver
    torch: Environment
    launcher: Launcher
    is_given: bool
    steps: tuple[str, ...]
    kept: dict[str, Launched] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """How many GPUs torch can use."""
        return len(self.torch.gpus)

    @property
    def where(self) -> str:
        """What computes, in words."""
        return f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else f"CPU, {_CPU_RANKS} ranks"

    def need_torch(self) -> None:
        """Raise where torch cannot be used at all."""
        if not self.torch.torch:
            msg = "torch cannot be imported" if self.torch.error else "torch is not installed"
            raise NotHereError(msg)

    def need_gpu(self) -> None:
        """Raise where torch has no GPU."""
        self.need_torch()
        if not self.gpus:
            raise NotHereError("torch sees no GPU" if self.driver.gpus else "no GPU")

    def package(self, *names: str) -> str:
        """Return which of the distributions *names* there is; raise where none is."""
        if not (found := self.torch.first_of(*names)):
            msg = f"{names[0]} is not installed"
            raise NotHereError(msg)
        return f"{found} {self.torch.packages[found]}"

    def of_framework(self, framework: str, *names: str) -> str:
        """Return which of *names* the environment of *framework* has; raise where there is none: none is made."""
        own = own_venv(ROOT) / "envs" / framework
        if self.is_given:
            return self.package(*names)
        if not any(own.glob(".made-*")):
            msg = f"no environment of {framework}'s; its first launch makes it"
            raise NotHereError(msg)
        packages = environment(own / "bin" / "python").packages
        return next((f"{name} {packages[name]}" for name in names if name in packages), names[0])

    def settings(self, framework: str) -> dict[str, str]:
        """Return what ranks need that compute on CPUs; with GPUs nothing: the defaults are what is tried."""
        ranks = {"pytorch": "NPROC_PER_NODE", "horovod": "SLOTS"}.get(framework)
        settings = {ranks: str(_CPU_RANKS)} if ranks else {}
        # A launch shares the GPUs that the driver names, whatever torch makes of them.
        if self.driver.gpus:
            settings["GPUS_PER_NODE"] = "0"
        return {} if self.gpus else settings

    def launch(
        self,
        script: str,
        *arguments: str,
        framework: str = "pytorch",
        workers: int = 0,
        env: Mapping[str, str] | None = None,
        limit_s: float = 60,
        options: tuple[str, ...] = (),
    ) -> Launched:
        """Launch one of the ladder's scripts, with the settings that this machine needs."""
        given = {**self.settings(framework), **(env or {})}
        launched = self.launcher.launch(
            framework, workers, script, *arguments, env=given, limit_s=limit_s, options=options
        )
        if "is taken by another program" in launched.last:
            raise NotHereError(launched.last)
        return launched

    def told(self, launched: Launched, name: str, ranks: int) -> list[dict[str, Any]]:
        """Return what all *ranks* have told; raise unless the launch ended with 0 and each rank found it right."""
        results = launched.results(name)
        wrong = [one for one in results if not one.get("right")]
        if launched.code or wrong or len(results) != ranks:
            self.launcher.keep(launched)
            told = f"{len(results)} of {ranks} ranks told something"
            why = wrong[0].get("error", wrong[0]) if wrong else told if not launched.code else launched.last
            raise RedError(f"{why}; launch.sh ended with {launched.code}; {Path('.clusters', launched.cluster)}-...")
        return results

    @property
    def ranks(self) -> int:
        """How many ranks `pytorch 0` has here."""
        return self.gpus or _CPU_RANKS
