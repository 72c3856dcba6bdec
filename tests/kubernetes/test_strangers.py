"""Others of a namespace, on a real Kubernetes: what they read of a cluster, and what they make up, tried.

One cluster, with a session, for all; the last test ends it.
"""

from __future__ import annotations

import base64
import copy
import json
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from subprocess import CompletedProcess
from urllib.parse import parse_qs, urlsplit

import pytest
from harness import wait_until
from kube.api import Api, RefusedError
from kube.cluster import Cluster
from kube.launches import CHECKOUT, LABEL, SOON_S, Site, site_for
from readers import PURPOSES, WAYS, made_of, opens, strings_of

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.signing import derived_key
from oci_cluster.contract.session import client_token, session_token
from oci_cluster.launcher.session.kinds import read_kind
from oci_cluster.system.text import now

LOOK = ["get", "list", "watch"]
# All that a reader has who is kept from Secrets; and who also makes what a data scientist makes.
READER = [
    {"apiGroups": [""], "resources": ["pods", "pods/log", "configmaps", "events", "services"], "verbs": LOOK},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": LOOK},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": LOOK},
]
MAKER = [
    *READER,
    {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["create", "patch", "delete"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "patch", "delete"]},
]
INDEX = "batch.kubernetes.io/job-completion-index"
# It clears the screen, renames the window, and copies a word.
ESCAPES = "\x1b[2J\x1b]0;evil\x07\x1b]52;c;ZXZpbA==\x07\x9b2J\r\b evil"


class Victim:
    """Somebody with `edit` who has a session in the namespace, and what only that person may know."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.kubernetes = site.kubernetes
        self.core = f"api/v1/namespaces/{site.namespace}"
        self.batch = f"apis/batch/v1/namespaces/{site.namespace}"
        self.planted = f"planted{secrets.token_hex(12)}"
        self._keep("keys", {"WANDB_API_KEY": self.planted})
        hello = CHECKOUT / "tests" / "clusters" / "hello"
        shutil.copytree(hello, site.project.path / "scripts" / "sessions" / "hello", dirs_exist_ok=True)
        (site.project.code / "mine.txt").write_text("mine")
        self.session = site.project.session("hello", "mine", "--framework", "plain", ENV_SECRETS="keys")
        wait_until(lambda: [*site.directory.glob("session-url")], lambda: self.session.err, SOON_S)
        self.launch_id = site.launch_id
        self.job = f"mine-{self.launch_id}"

    def _keep(self, name: str, words: dict[str, str], **labels: str) -> None:
        meta = {"name": name, "labels": labels}
        self.kubernetes.api.create(f"{self.core}/secrets", {"metadata": meta, "stringData": words})

    def keep_a_database(self) -> None:
        """Have a Secret that has nothing to do with the cluster, but for a label."""
        self._keep("database", {"password": "x"}, **{LABEL: self.launch_id})

    @cached_property
    def launch_key(self) -> str:
        data = self.kubernetes.api.get(f"{self.core}/secrets/{self.job}")["data"]
        return base64.b64decode(data["LAUNCH_KEY"]).decode()

    @contextmanager
    def known_to_nobody_here(self) -> Iterator[None]:
        """Have this checkout know as much of the cluster as others do."""
        plan, away = self.site.directory / "cluster.json", self.site.project.scratch / "away"
        plan.rename(away)
        yield
        away.rename(plan)

    @property
    def url(self) -> str:
        return (self.site.directory / "session-url").read_text().strip()

    def run(self, *words: str) -> CompletedProcess[str]:
        """Run a script to its end; whatever is there, it moves no terminal."""
        done = self.site.project.run(*words)
        for text in (done.stdout, done.stderr):
            assert all(line.isprintable() for line in text.split("\n")), repr(text)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def there(self) -> dict[str, str]:
        """Return the ids of all that is in the namespace, by kind and name."""
        networks = f"apis/networking.k8s.io/v1/namespaces/{self.site.namespace}"
        kinds = [*(f"{self.core}/{kind}" for kind in ("pods", "services", "secrets", "configmaps"))]
        kinds += [f"{self.batch}/jobs", f"{networks}/networkpolicies"]
        return {
            f"{kind.rpartition('/')[2]}/{item['metadata']['name']}": item["metadata"]["uid"]
            for kind in kinds
            for item in self.kubernetes.api.items(kind)
        }


@pytest.fixture(scope="module")
def victim(
    kubernetes: Cluster, toy_image: str, checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Victim]:
    with ExitStack() as stack:
        namespace = stack.enter_context(kubernetes.namespace())
        user = kubernetes.user(namespace)
        site = stack.enter_context(site_for(checkout_copy, tmp_path_factory.mktemp("strangers") / "mine", user))
        yield Victim(site)


def test_who_reads_a_namespace_gets_no_key_and_into_no_session(victim: Victim) -> None:
    """Jobs, pods, logs, ConfigMaps, events, Services and policies have neither key nor token, nor what leads there."""
    reader = Api(victim.kubernetes.user(victim.site.namespace, rules=READER).by_token())
    with pytest.raises(RefusedError, match="403"):
        reader.get(f"{victim.core}/secrets/{victim.job}")
    networks = f"apis/networking.k8s.io/v1/namespaces/{victim.site.namespace}"
    kinds = [f"{victim.core}/{kind}" for kind in ("pods", "configmaps", "events", "services")]
    seen = [reader.items(kind) for kind in (*kinds, f"{victim.batch}/jobs", f"{networks}/networkpolicies")]
    pods = [pod["metadata"]["name"] for pod in seen[0]]
    seen.append([{"log": reader.get(f"{victim.core}/pods/{name}/log").splitlines()} for name in pods])
    assert all(seen), "it sees some of each"

    words = {word for word in strings_of(seen) if word.isprintable()}
    assert {"keys", victim.job, "hello"} <= words
    key = victim.launch_key
    token = session_token(key, victim.launch_id)
    address = urlsplit(victim.url)
    assert parse_qs(address.query)["t"] == [token]
    hidden = {
        "LAUNCH_KEY": key,
        "of ENV_SECRETS": victim.planted,
        "token": token,
        "client's token": client_token(key, victim.launch_id),
        **{f"key for {purpose}": derived_key(key, victim.launch_id, purpose).hex() for purpose in PURPOSES},
    }
    forms = [(name, form) for name, word in hidden.items() for form in (word, base64.b64encode(word.encode()).decode())]
    text = json.dumps(seen)
    assert [name for name, form in forms if form in text] == []
    guesses = set().union(*map(made_of, words))
    assert token not in guesses
    # Also the server says so, of what looks like a key most.
    kind = replace(read_kind(victim.site.project.path, "hello"), port=address.port or 0)
    assert opens("127.0.0.1", kind, victim.launch_id, token) == WAYS["hello"]
    likely = set().union(*(made_of(word) for word in words if len(word) == len(victim.launch_id)))
    assert [word for word in likely if opens("127.0.0.1", kind, victim.launch_id, word)] == []


class Maker:
    """Somebody who may make Jobs, pods and ConfigMaps beside the victim's, and sees no Secret."""

    def __init__(self, victim: Victim) -> None:
        self.victim = victim
        self.api = Api(victim.kubernetes.user(victim.site.namespace, rules=MAKER).by_token())
        self.seen = self.api.get(f"{victim.batch}/jobs/{victim.job}")
        self.count = 0

    def job(self, name: str, launch_id: str = "", *, title: str = "", notes: object = None, **variables: str) -> str:
        """Make a Job of what is seen of the victim's, which makes no pods; return the name of its cluster."""
        self.count += 1
        launch_id = launch_id or f"{self.count:08x}"
        made = copy.deepcopy(self.seen)
        told = {"oci-cluster-name": name, "oci-cluster-created": now(), "oci-cluster-project": ESCAPES}
        labels = {**made["metadata"]["labels"], LABEL: launch_id}
        annotations = {**made["metadata"]["annotations"], **told, **(notes if isinstance(notes, dict) else {})}
        own = {"name": title or f"{name}-{launch_id}", "labels": labels, "annotations": annotations}
        template = made["spec"]["template"]
        template["metadata"] = {"labels": {LABEL: launch_id}}
        (container,) = template["spec"]["containers"]
        variables = {"WORK_DIR": "main://127.0.0.1:1", "GREETING": ESCAPES, **variables}
        kept = [one for one in container["env"] if one["name"] not in variables]
        container["env"] = [*kept, *({"name": key, "value": text} for key, text in variables.items())]
        spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "suspend": True, "template": template}
        self.api.create(f"{self.victim.batch}/jobs", {"metadata": own, "spec": spec})
        return name

    def told(self, name: str, launch_id: str) -> str:
        """Return what a launcher would have told of an end; without a key anybody signs with the launch id."""
        body = ClusterDir("memory://none", launch_id, "").signed("stop", reason=ESCAPES, exit_code=7, node=name)[0]
        return body.decode()

    def pod(self) -> None:
        """Make a pod as the Job controller has made main's, of a later second, which a ConfigMap owns."""
        victim = self.victim
        marks = {LABEL: victim.launch_id, "batch.kubernetes.io/job-name": victim.job, INDEX: "0"}
        path = f"{victim.core}/configmaps"
        own = self.api.create(path, {"metadata": {"name": victim.job, "labels": marks}, "data": {"x": ESCAPES}})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": victim.job, "uid": own["metadata"]["uid"]}
        template = copy.deepcopy(self.seen["spec"]["template"]["spec"])
        # It is seen at once, and never begins.
        spec = {**template, "hostname": f"{victim.job}-0", "schedulingGates": [{"name": "evil.example/never"}]}
        meta = {"name": f"{victim.job}-0-evil", "labels": marks, "annotations": {INDEX: "0"}}
        self.api.create(f"{victim.core}/pods", {"metadata": {**meta, "ownerReferences": [owner]}, "spec": spec})


def hostile_jobs(maker: Maker, end: str, folder: Path) -> tuple[list[str], list[str]]:
    """Make Jobs up; return the names of clusters whose work dirs are not to be opened, and of the other ones."""
    urls = [f"dask://{end}", f"http://{end}/x", f"simplecache::http://{end}/x", f"local://{folder}", ESCAPES]
    shut = [maker.job(f"evil-{number}", WORK_DIR=url) for number, url in enumerate(urls)]
    (folder / "evil-3-00000004").mkdir()  # as if it were its cluster dir
    giant = "9" * 5000
    others = [
        maker.job("nonsense-1", WORKER_COUNT=ESCAPES, SESSION="hello", SESSION_PORT="-1"),
        maker.job("nonsense-2", INTERRUPTIBLE="nan", TTL=giant, HEARTBEAT_TIMEOUT="inf", EXPOSE=ESCAPES),
        maker.job("nonsense-3", SESSION="../../evil", SESSION_PORT="1", notes={"oci-cluster-ended": f"WORKER_{giant}"}),
        maker.job("nonsense-4", notes={"oci-cluster-stop": "[" * 100_000, "oci-cluster-framework": ESCAPES}),
        maker.job("nonsense-5", "0000beef", notes={"oci-cluster-stop": maker.told("MAIN", "0000beef")}),
        maker.job("nonsense-6", WORK_DIR=f"main://{end}", notes={"oci-cluster-framework": "x" * 150_000}),
    ]
    return shut, others


def clusters_in_the_way(maker: Maker) -> list[str]:
    """Make up what stands for the own cluster: under its name, its id, its launch id; return the ids that are shown."""
    mine, later = maker.victim.launch_id, {"oci-cluster-created": "9999-12-31T23:59:59Z"}
    maker.job("a", mine)
    maker.job("b", "000000cc", title="b-of-000000cc")
    maker.job("mine", "000000aa", notes=later)
    maker.job(f"mine-{mine}", "000000bb", notes=later)
    for created in ("9999-99-99T99:99:99Z", ESCAPES):
        maker.job("no-time", notes={"oci-cluster-created": created})
    return ["mine-000000aa", f"mine-{mine}-000000bb"]


def test_who_makes_up_jobs_and_pods_has_nothing_opened_hidden_or_removed(victim: Victim, tmp_path: Path) -> None:
    """Who looks at them, or ends them, dials nobody, and sees and ends the own cluster, and that alone."""
    maker = Maker(victim)
    victim.keep_a_database()
    before = victim.there()
    created = maker.api.items(f"{victim.core}/pods")[0]["metadata"]["creationTimestamp"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = f"127.0.0.1:{listener.getsockname()[1]}"
        shut, others = hostile_jobs(maker, end, tmp_path)
        in_the_way = clusters_in_the_way(maker)
        wait_until(lambda: now() > created, "the next second", SOON_S)  # of two pods the newest counts
        maker.pod()

        with victim.known_to_nobody_here():
            listed = victim.run("list", "--all", "--json")
        assert listed.returncode == 0, listed.stderr
        found = json.loads(listed.stdout)
        assert {*shut, *others} <= {one["name"] for one in found}
        assert [one["state"] for one in found if one.get("job") == victim.job] == ["IN_PROGRESS"]
        assert not [one for one in found if one["name"] in {"a", "b", "no-time"}]
        assert victim.run("list").returncode == 0

        for name in ("mine", victim.job):
            shown = json.loads(victim.run("status", name, "--json").stdout)
            assert [(node["node"], node["state"]) for node in shown["nodes"]] == [("MAIN", "IN_PROGRESS")]
            assert shown["nodes"][0]["uid"] == before[next(key for key in before if key.startswith("pods/"))]
        logs = victim.run("logs", "mine")
        assert "MAIN | " in logs.stdout, logs
        assert "evil" not in logs.stdout + logs.stderr

        for words in (["status", shut[0]], ["logs", shut[1]], ["logs", shut[2]], ["status", shut[3]]):
            said = victim.run(*words)
            assert "names a WORK_DIR that is not opened without being asked" in said.stdout + said.stderr, said
        for words in (["status", others[3]], ["status", others[4]], ["logs", others[5]]):
            victim.run(*words)
        ended = victim.run("stop", "--delete", shut[0], shut[3], others[0], others[2], *in_the_way)
        assert ended.returncode == 0, ended.stderr
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (tmp_path / "evil-3-00000004").exists()
    assert {name: uid for name, uid in victim.there().items() if name in before} == before

    stopped = victim.run("stop", "--delete", "mine")
    assert (stopped.returncode, stopped.stdout) == (0, "mine\n"), stopped.stderr
    left = victim.there()
    assert not [name for name in left if before.get(name) == left[name] and victim.job in name]
    assert {"secrets/database", "secrets/keys", f"configmaps/{victim.job}", f"pods/{victim.job}-0-evil"} <= set(left)
    assert victim.session.wait(SOON_S) in {76, 143}, victim.session.err  # its Job is gone, with all that told its end
