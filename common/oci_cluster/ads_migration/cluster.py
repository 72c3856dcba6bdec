"""`spec.cluster`: the framework, the number of nodes, and their settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from oci_cluster.ads_migration.conversion import Conversion, Kind
from oci_cluster.ads_migration.fields import Field
from oci_cluster.contract.parsers import parse_count
from oci_cluster.contract.settings import ads_names
from oci_cluster.contract.settings.settings_files import framework_dir
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

_ROLES = ("main", "worker", "ps")
# Of a cluster's name, with which the launch id goes.
_LONGEST_NAME = 100
# A repository in a registry: host, then namespace and name, and a tag that is not taken.
_IMAGE = re.compile(
    r"(?P<registry>(localhost|[a-z0-9-]+\.[a-z0-9.-]+)(:\d+)?(/[\w.-]+)+)/[\w.-]+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
)


def convert_cluster(found: Conversion, cluster: Field, display_name: Field | None, registry: str) -> None:
    """Take `spec.cluster`."""
    outer = found.open(cluster, "kind", "apiVersion", "spec")
    if "kind" not in outer or "spec" not in outer:
        raise SettingsError(
            f"{cluster.where}: a cluster of ADS's has kind, the framework, and spec; give the YAML of ads opctl run"
        )
    found.framework = printable(outer["kind"].text().strip().lower(), 100)
    try:
        framework_dir(found.framework)
    except ValueError as error:
        raise SettingsError(f"{outer['kind'].where}: {error}") from error
    fields = found.open(outer["spec"], "name", "image", "workDir", "ephemeral", "config", "certificate", *_ROLES)
    roles = {role: found.open(fields[role], "name", "image", "replicas", "config") for role in _ROLES if role in fields}
    take_name(found, fields.get("name"), display_name)
    _take_images(found, [each["image"] for each in (fields, *roles.values()) if "image" in each], registry)
    if "workDir" in fields:
        found.set_work_dir(fields["workDir"])
    if "ephemeral" in fields:
        why = "a cluster ends with its script, as in ADS, whatever stands here; with launch.sh --keep it stays"
        found.note(Kind.NO_NEED, fields["ephemeral"], why)
    if "certificate" in fields:
        why = "connections of Dask, for which ADS used it, are encrypted anyway, with a certificate for each launch"
        found.note(Kind.NO_NEED, fields["certificate"], why)
    _take_counts(found, outer["spec"], roles)
    if "config" in fields:
        for variable, name, text in _configured(found, fields["config"]):
            found.set_variable(variable, name, text)
    _take_role_configs(found, roles)


def take_name(found: Conversion, name: Field | None, display_name: Field | None) -> None:
    """Take the name as ADS does: of the cluster, else of the Job."""
    chosen = name or display_name
    if name and display_name:
        found.note(Kind.NO_NEED, display_name, "ADS, too, calls the Job by the cluster's name")
    if chosen is None:
        return
    text = chosen.text().strip()
    found.name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:_LONGEST_NAME]
    found.taken += 1
    if found.name != text:
        found.note(Kind.CHANGED, chosen, f"a name has letters, digits and . _ - alone: '{found.name}'")


def _take_images(found: Conversion, images: list[Field], built: str) -> None:
    """Take the registry: the images themselves hold ADS's programs."""
    for number, image in enumerate(images):
        text = image.text().strip()
        parts = _IMAGE.fullmatch(built if text == "@image" else text)
        if number:
            found.note(Kind.NO_NEED, image, "all nodes have one image; ADS, too, takes the first that it finds")
        elif parts is None:
            found.lose(image, "it names no registry: set REGISTRY, into which `make build push` puts our image")
        else:
            found.set("REGISTRY", parts["registry"], image)
            why = (
                f"the image has ADS's programs; `make build-{found.framework} push-{found.framework}` makes ours there"
            )
            found.note(Kind.CHANGED, image, why)


# --- Roles ----------------------------------------------------------------------------------------------------------


def _take_counts(found: Conversion, cluster: Field, roles: Mapping[str, Mapping[str, Field]]) -> None:
    """Take how many nodes there are; what ADS counts, main is not among."""
    counts = {role: count_of(each["replicas"]) if "replicas" in each else 1 for role, each in roles.items()}
    if counts.get("main", 1) != 1:
        found.note(Kind.NO_NEED, roles["main"]["replicas"], "there is one main, in ADS too")
    found.workers = counts.get("worker", 0)
    if "ps" in roles and found.framework == "tensorflow":
        found.servers = counts["ps"]
        if found.servers and not found.workers:
            found.workers = 1
            why = "parameter servers serve workers: there is one, one more node than in ADS"
            found.lose(roles["worker"]["replicas"] if "replicas" in roles.get("worker", {}) else cluster, why)
    elif "ps" in roles:
        found.lose(cluster.mapping()["ps"], f"parameter servers are TensorFlow's; {found.framework} has none")
    found.taken += sum("replicas" in each for each in roles.values())
    for role, each in roles.items():
        if "name" in each:
            called = "MAIN" if role == "main" else f"{role.upper()}_1 and so on"
            found.note(Kind.NO_NEED, each["name"], f"nodes are called by their roles: {called}")


def count_of(replicas: Field, minimum: int = 0) -> int:
    """Return the number of nodes that *replicas* says."""
    try:
        return parse_count(replicas.text(), minimum=minimum)
    except ValueError as error:
        raise SettingsError(f"{replicas.where}: {printable(error)}") from error


def _configured(found: Conversion, config: Field) -> list[tuple[Field, str, str]]:
    """Return the variables of *config*, each with its field; its options are taken."""
    fields = found.open(config, "env", "startOptions")
    if "startOptions" in fields:
        options = fields["startOptions"]
        words = [option.text() for option in options.items()] if isinstance(options.value, list) else [options.text()]
        found.set_options(options, "OCI__START_ARGS", " ".join(words))
    return variables_of(found, fields["env"]) if "env" in fields else []


def variables_of(found: Conversion, env: Field) -> list[tuple[Field, str, str]]:
    """Return the variables of the list *env*: field, name and text."""
    variables = []
    for item in env.items():
        fields = found.open(item, "name", "value")
        if "name" not in fields:
            found.lose(item, "a variable has name and value")
        else:
            variables.append((item, fields["name"].text(), fields["value"].text() if "value" in fields else ""))
    return variables


def _take_role_configs(found: Conversion, roles: Mapping[str, Mapping[str, Field]]) -> None:
    """Take variables of single roles, where they are the same for all."""
    given = {role: _configured(found, each["config"]) for role, each in roles.items() if "config" in each}
    values = {role: {name: text for _, name, text in variables} for role, variables in given.items()}
    all_roles = {"main", "worker", *roles}
    for variables in given.values():
        for variable, name, text in variables:
            texts = {values.get(role, {}).get(name, found.variables.get(name)) for role in all_roles}
            row = ads_names.find(name, found.framework)
            is_setting = name == "HOROVOD_ARGS" or (row is not None and texts - {None} == {text})
            if texts == {text} or is_setting or (row is not None and not row.own):
                found.set_variable(variable, name, text)
            else:
                why = "all nodes of a launch get the same variables; let the script look at MODE: MAIN, WORKER or PS"
                found.lose(variable, why, name)
