"""A node that ADS starts, by `OCI__...` variables alone: their settings here.

ADS has no launch id. The Job's OCID is taken for one, as each `ads opctl run` makes a Job; and each node takes its name
by a file that storage makes only once. So runs that somebody starts of the same Job again end with an error. In ADS
they found what was left of the first, and ended with 0 without having run anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.parsers import parse_args, parse_named_args, parse_switch
from oci_cluster.contract.settings import ads_names
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import SettingsError
from oci_cluster.node.begin.rank import claim_rank, ranks_of_group

log = logging.getLogger(__name__)

# The name of a Job for ADS's nodes if there is none, as on somebody's own machine.
_NO_JOB = "Undefined"
_OUTPUTS = "OCI__SYNC_DIR"
_WAITING = Waiting()
# Variables that tell a node outside OCI its identity: ADS's names, by those of ocifs.
_IDENTITY = {"OCIFS_IAM_TYPE": "OCI_IAM_TYPE", "OCIFS_CONFIG_PROFILE": "OCI_CONFIG_PROFILE"}


def as_own(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return *environ* as the agent takes it; set this process's identity for storage."""
    own = with_own_names(environ)
    os.environ.update({name: own[name] for name in _IDENTITY if name in own})
    return with_own_rank(own)


def with_own_names(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* with our settings for ADS's; log those without a counterpart.

    A setting of ours that is there already wins.
    """
    # ADS writes a field that is missing in its YAML as the text None.
    given = {name: text for name, text in environ.items() if not (name.startswith("OCI__") and text == "None")}
    found = _Found(given)
    found.name_the_cluster()
    found.translate_variables()
    found.translate_start_options()
    found.translate_arguments()
    found.translate_code()
    found.find_outputs()
    found.keep_ephemeral()
    return found.environ


def with_own_rank(environ: Mapping[str, str], waiting: Waiting = _WAITING) -> Mapping[str, str]:
    """Return *environ* with a rank that no other node has or has had."""
    told = environ.get("NODE_RANK") or environ.get("RANK") or environ.get("OCI__RANK")
    settings = read_settings({**environ, **({} if told else {"NODE_RANK": "1"})})
    ranks = [settings.rank] if settings.is_main or told else [*ranks_of_group(settings)]
    taken = (
        f"another node of {settings.cluster_id} has, or had, the rank of this {settings.mode}: the runs of one Job make"
        " one cluster, once; create a new Job for the next one, or give all its nodes one CLUSTER_ID of their own"
    )
    holder = environ.get("JOB_RUN_OCID") or uuid.uuid4().hex
    rank = claim_rank(settings, ranks, holder, taken=taken, waiting=waiting)
    return {**environ, "NODE_RANK": str(rank)}


class _Found:
    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self._framework = (environ.get("FRAMEWORK") or environ.get("OCI__CLUSTER_TYPE", "")).lower()
        self._set("FRAMEWORK", self._framework)
        if environ.get("OCI__CLUSTER_TYPE", self._framework).lower() != self._framework:
            log.warning(
                "OCI__CLUSTER_TYPE is %s, and FRAMEWORK, which wins, %s", environ["OCI__CLUSTER_TYPE"], self._framework
            )

    def _set(self, name: str, text: str) -> None:
        if text and not self.environ.get(name):
            self.environ[name] = text

    def name_the_cluster(self) -> None:
        """Find names that all nodes of the Job know, and no others."""
        self._set("CLUSTER_ID", self.environ.get("JOB_OCID") or _NO_JOB)
        self._set("LAUNCH_ID", hashlib.sha256(self.environ["CLUSTER_ID"].encode()).hexdigest()[:8])
        # Source of both numbers: ADS's providers.
        self._set(
            "WORKER_COUNT", self.environ.get("OCI__WORKER_COUNT") or ("0" if self._framework == "tensorflow" else "1")
        )

    def translate_variables(self) -> None:
        for name in sorted(self.environ):
            if ads_names.is_unknown(name):
                log.warning("%s is not known here, and is left alone", name)
            elif (row := ads_names.find(name, self._framework)) and name != _OUTPUTS:
                if row.own:
                    self._set(row.own, self.environ[name])
                elif row.effect and self.environ[name] not in {"", row.off}:
                    log.warning("%s has no counterpart: %s", name, row.reason)
        for own, name in _IDENTITY.items():
            self._set(own, self.environ.get(name, ""))

    def translate_start_options(self) -> None:
        for variable in ("OCI__START_ARGS", "HOROVOD_ARGS"):
            options = ads_names.options_of(variable, self._framework, self.environ.get(variable, ""))
            for name, text in options.settings.items():
                self._set(name, text)
            for option, reason in options.lost:
                log.warning("%s: %s has no counterpart: %s", variable, option, reason)

    def translate_arguments(self) -> None:
        """Add words such as ``--cv 5`` to the arguments: named ones are pairs."""
        text = self.environ.get("OCI__ENTRY_SCRIPT_KWARGS", "")
        if not text or self.environ.get("NAMED_ARGS"):
            return
        try:
            parse_named_args(text)
        except ValueError:
            own = self.environ.get("ARGS", "")
            with contextlib.suppress(ValueError):  # what is wrong with ours is told where all settings are read
                before = parse_args(own) if own else ads_names.split(self.environ.get("OCI__ENTRY_SCRIPT_ARGS", ""))
                self.environ["ARGS"] = json.dumps([*before, *ads_names.split(text)])
                del self.environ["OCI__ENTRY_SCRIPT_KWARGS"]

    def translate_code(self) -> None:
        """Have the node fetch what ADS's node would."""
        get = self.environ.get
        kind = get("OCI__RUNTIME_TYPE", "")
        git = get("OCI__RUNTIME_GIT_BRANCH", ""), get("OCI__RUNTIME_GIT_COMMIT", "")
        uri = ads_names.code_uri(kind, get("OCI__RUNTIME_URI", ""), *git)
        if kind and not uri and not get("CODE_URI"):
            raise SettingsError(
                f"OCI__RUNTIME_TYPE '{kind}' is neither git nor remote, or OCI__RUNTIME_URI is not set; set CODE_URI"
            )
        if not uri or get("CODE_URI"):
            return
        for name, reason in (
            ("OCI__RUNTIME_GIT_SECRET_ID", ads_names.GIT_SECRET),
            ("OCI__RUNTIME_PYTHON_PATH", ads_names.PYTHON_PATH),
        ):
            if get(name):
                log.warning("%s has no counterpart: %s", name, reason)
        # Fetched code has a private directory here; ADS puts it where its images have theirs.
        folder = self.environ.pop("OCI__CODE_DIR", "") or ads_names.CODE_DIR
        self._set("ENTRY_POINT", ads_names.inside_code(get("OCI__ENTRY_SCRIPT", ""), folder))
        self.environ["CODE_URI"] = uri

    def find_outputs(self) -> None:
        """Drop a folder of outputs that cannot be made: nodes are not root."""
        given = self.environ.get(_OUTPUTS, "")
        if not given or self.environ.get("OUTPUT_DIR"):
            return
        problem = ""
        try:
            Path(given).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = str(error.strerror)
        if not problem and not os.access(given, os.W_OK | os.X_OK):
            problem = "nothing can be written there"
        if problem:
            log.warning("%s: %s: %s; the script gets another folder by this name", _OUTPUTS, given, problem)
            del self.environ[_OUTPUTS]

    def keep_ephemeral(self) -> None:
        """End the cluster with its script, whatever the text: so does ADS."""
        text = self.environ.pop("OCI__EPHEMERAL", "")
        with contextlib.suppress(ValueError):
            if text and not self.environ.get("EPHEMERAL") and not parse_switch(text):
                log.warning("OCI__EPHEMERAL: the script runs, and the cluster ends, as in ADS; EPHEMERAL=0 keeps it")
