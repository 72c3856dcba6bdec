"""Real pods of a real Kubernetes: codes, names, signals, and what user and API may do to each other."""

from __future__ import annotations

from harness import wait_until
from kube import jobs
from kube.api import Api, RefusedError, condition
from kube.cluster import Cluster, User
from kube.volumes import claim


def test_an_indexed_job_tells_the_code_and_the_last_words_of_every_node(kubernetes: Cluster, user: User) -> None:
    """Under Pod Security `restricted`, by somebody with `edit` alone: 0, 7 and 14 come out as they are."""
    api = Api(user.by_certificate())
    script = "id -u; echo index $JOB_COMPLETION_INDEX >/dev/termination-log; exit $((7 * JOB_COMPLETION_INDEX))"
    with jobs.running(api, user.namespace, jobs.job("codes", 3, script)) as path:
        done = api.until(path, lambda job: condition(job, "Failed"), "the Job to fail")
        nodes = jobs.pods(api, user.namespace, "codes")
        states = {index: jobs.ended(pod) for index, pod in nodes.items()}
        assert {index: (state["exitCode"], state["message"]) for index, state in states.items()} == {
            0: (0, "index 0\n"),
            1: (7, "index 1\n"),
            2: (14, "index 2\n"),
        }
        assert (done["status"]["completedIndexes"], done["status"]["failedIndexes"]) == ("0", "1,2")
        log = f"api/v1/namespaces/{user.namespace}/pods/{nodes[0]['metadata']['name']}/log"
        assert api.get(log) == "1000\n"


def test_nodes_find_each_other_by_names_from_machine_to_machine(kubernetes: Cluster, user: User) -> None:
    """Four nodes on two machines: each resolves all, connects to all, and sees the true address of who connects."""
    api = Api(user.by_token())
    # A node ends when it has asked all, and all have asked it.
    program = """
import os, socket, socketserver, threading, time
asked, seen, deadline = set(), {}, time.monotonic() + 60
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        asked.add(self.client_address[0])
        self.wfile.write(self.client_address[0].encode())
server = socketserver.ThreadingTCPServer(("", 4000), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
def ask(index):
    with socket.create_connection((f"names-{index}.names", 4000), 5) as peer: return peer.recv(100).decode()
while (len(seen) < 4 or len(asked) < 4) and time.monotonic() < deadline:
    for index in set(range(4)) - set(seen):
        try: seen[index] = ask(index)
        except OSError: pass
    time.sleep(0.1)
open("/dev/termination-log", "w").write(f"{sorted(seen)} {set(seen.values())} {len(asked)}")
"""
    with jobs.running(api, user.namespace, jobs.job("names", 4, f"exec python3 -c '{program}'")) as path:
        api.until(path, lambda job: condition(job, "Complete"), "the Job to be complete")
        nodes = jobs.pods(api, user.namespace, "names")
    assert {pod["spec"]["nodeName"] for pod in nodes.values()} == {"n1", "n2"}
    for pod in nodes.values():
        address = pod["status"]["podIP"]
        assert jobs.ended(pod)["message"] == f"[0, 1, 2, 3] {{'{address}'}} 4"


def test_term_reaches_a_node_whose_job_is_deleted(kubernetes: Cluster, user: User) -> None:
    """Its last line comes to who follows its log; a process that does not end is killed after its grace period."""
    api = Api(user.by_token())
    script = "trap 'echo told to end; exit 3' TERM; echo begun; while :; do sleep 0.1; done"
    with jobs.running(api, user.namespace, jobs.job("told", 1, script)) as path:
        api.until(path, lambda job: job["status"].get("ready"), "the node to run")
        name = jobs.pods(api, user.namespace, "told")[0]["metadata"]["name"]
        address = f"api/v1/namespaces/{user.namespace}/pods/{name}/log"
        wait_until(lambda: "begun" in api.get(address), "its first line")
        with api.session.get(f"{api.server}/{address}?follow=true", stream=True, timeout=60) as log:
            api.delete(path)
            assert list(log.iter_lines(decode_unicode=True)) == ["begun", "told to end"]


def test_a_user_has_the_rights_of_its_role_and_no_other(kubernetes: Cluster, namespace: str) -> None:
    """By certificate, token and plugin alike; a rule that is taken away is missed at once."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    user = kubernetes.user(namespace, rules=rules)
    for config in (user.by_certificate(), user.by_token(), user.by_plugin()):
        assert kubernetes.kubectl("get", "jobs,pods", kubeconfig=config).returncode == 0
        for words in (["get", "services"], ["get", "pods", "--namespace=default"], ["delete", "jobs", "x"]):
            refused = kubernetes.kubectl(*words, kubeconfig=config)
            assert "(Forbidden)" in refused.stderr, (words, refused.stdout, refused.stderr)
    assert user.plugin_calls() > 0
    user.set_rules(rules[:1])
    api = Api(user.by_token())
    wait_until(lambda: _is_refused(api, f"api/v1/namespaces/{namespace}/pods"), "pods to be refused")
    assert api.items(f"apis/batch/v1/namespaces/{namespace}/jobs") == []


def test_a_pod_reaches_the_api_with_its_account(kubernetes: Cluster, user: User) -> None:
    """As a launcher in a pod does: by the variables, the token and the certificate that every pod is given."""
    program = """
import os, ssl, urllib.request
given = "/var/run/secrets/kubernetes.io/serviceaccount"
read = lambda name: open(f"{given}/{name}").read()
trust = ssl.create_default_context(cafile=f"{given}/ca.crt")
for host in (os.environ["KUBERNETES_SERVICE_HOST"], "kubernetes.default.svc"):
    request = urllib.request.Request("https://" + host + "/api/v1/namespaces/" + read("namespace") + "/pods")
    request.add_header("Authorization", "Bearer " + read("token"))
    print(urllib.request.urlopen(request, context=trust).status)
"""
    body = jobs.job("inside", 1, f"exec python3 -c '{program}'")
    body["spec"]["template"]["spec"]["serviceAccountName"] = user.name
    api = Api(user.by_token())
    with jobs.running(api, user.namespace, body) as path:
        api.until(path, lambda job: condition(job, "Complete"), "the Job to be complete")
        pod = jobs.pods(api, user.namespace, "inside")[0]["metadata"]["name"]
        assert api.get(f"api/v1/namespaces/{user.namespace}/pods/{pod}/log").split() == ["200", "200"]


def test_a_claim_is_one_directory_for_all_nodes(kubernetes: Cluster, user: User) -> None:
    """As uid 1000, on two machines: each writes a file, and waits for the other's."""
    api = Api(user.by_token())
    script = """echo $JOB_COMPLETION_INDEX >/work/$JOB_COMPLETION_INDEX
        until [ -s /work/0 ] && [ -s /work/1 ]; do sleep 0.1; done"""
    body = jobs.job("shared", 2, script)
    pod = body["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "work", "mountPath": "/work"}]
    with claim(kubernetes, user.namespace, "work") as directory, jobs.running(api, user.namespace, body) as path:
        api.until(path, lambda job: condition(job, "Complete"), "the Job to be complete")
        assert {file.name: file.read_text() for file in directory.iterdir()} == {"0": "0\n", "1": "1\n"}
        assert {pod["spec"]["nodeName"] for pod in jobs.pods(api, user.namespace, "shared").values()} == {"n1", "n2"}


def test_what_pod_security_forbids_starts_nowhere(kubernetes: Cluster, user: User) -> None:
    body = jobs.job("root", 1, "true")
    body["spec"]["template"]["spec"]["hostNetwork"] = True
    api = Api(user.by_certificate())
    with jobs.running(api, user.namespace, body):
        events = f"api/v1/namespaces/{user.namespace}/events"
        wait_until(lambda: any("violates PodSecurity" in event["message"] for event in api.items(events)), "a refusal")
        assert jobs.pods(api, user.namespace, "root") == {}


def _is_refused(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except RefusedError as error:
        return error.code == 403
    return False
