"""Rows of the table of settings: what every node gets as its backend has it."""

from __future__ import annotations

from oci_cluster.contract.setting import Receiver, Setting
from oci_cluster.contract.values import parse_count, parse_network, parse_switch, parse_url

PLACED_SETTINGS = (
    Setting(
        "WORK_DIR",
        Receiver.PLACED,
        "any fsspec URL, or `main://HOST:PORT`: the memory of main, see below",
        parse_url,
        default=None,
        aliases=("OCI__WORK_DIR",),
        example="file:///data/clusters",
    ),
    Setting(
        "CODE_URI",
        Receiver.PLACED,
        "fetched into `CODE_DIR` first: `<fsspec URL of a tar>#sha256=<hex>` of 10 GiB at most, `git+<URL>@<ref>`, or"
        " `folder+<fsspec URL of a folder>`, which no hash checks",
        example="git+https://example.com/me/project@v1",
    ),
    Setting(
        "NODE_LOGS",
        Receiver.PLACED,
        "`1`: all that the node prints goes to the cluster dir too",
        parse_switch,
        default="0",
        backend_defaults={"oci": "1", "kubernetes": ""},
        example="1",
    ),
    Setting(
        "NODE_GROUP",
        Receiver.PLACED,
        "the group of which the service has started this node: the node takes a rank of it by itself, see below",
        is_for_config=False,
    ),
    Setting(
        "CLUSTER_NODES_METADATA_FILE",
        Receiver.PLACED,
        'set by OCI\'s node groups: a list of `{"Rank", "IPAddress"}`, in which this node\'s address is; waited for',
        is_for_config=False,
    ),
    Setting(
        "SUBNET_CIDR",
        Receiver.PLACED,
        "the address inside it is this node's",
        parse_network,
        backend_defaults={"oci": ""},
        example="10.0.1.0/24",
    ),
    Setting(
        "JOB_COMPLETION_INDEX",
        Receiver.PLACED,
        "set by Kubernetes: where there is no `MODE`, the rank, of which the role follows: 0 is main, then the workers,"
        " then the parameter servers; what comes after these is a worker, too",
        parse_count,
        is_for_config=False,
    ),
    Setting(
        "TERMINATION_LOG",
        Receiver.PLACED,
        "a file to which the node writes how it has ended, for who cannot reach the cluster dir, see below",
        is_for_config=False,
    ),
)
