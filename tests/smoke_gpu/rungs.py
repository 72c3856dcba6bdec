"""The rungs: each tries one sentence of docs/gpu.md."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from smoke_gpu.ground import Ground
from smoke_gpu.launching import NotHereError, RedError
from smoke_gpu.machine import compiler, engine_gpus

BAD_SETTINGS = 78


@dataclass(frozen=True)
class Rung:
    """One rung: *says* is the sentence of docs/gpu.md; *climb* returns what was seen, or raises."""

    name: str
    says: str
    climb: Callable[[Ground], str]


def _driver(ground: Ground) -> str:
    if not ground.driver.gpus:
        raise NotHereError(ground.driver.why_not)
    return f"driver {ground.driver.version}, CUDA {ground.driver.cuda}: {', '.join(ground.driver.gpus)}"


def _torch(ground: Ground) -> str:
    if ground.torch.error:
        raise RedError(f"torch cannot be imported: {ground.torch.error}")
    ground.need_torch()
    seen = ground.torch.torch
    if ground.driver.gpus and not ground.gpus:
        # Red, and not "not here": whoever trains here trains on CPUs, and no line of the training says so.
        why = (
            f"its CUDA {seen['cuda']} cannot use driver {ground.driver.version}, or CUDA_VISIBLE_DEVICES hides them"
            if seen["cuda"]
            else "it is the build without CUDA; take the other, or --python PATH"
        )
        raise RedError(f"nvidia-smi names {len(ground.driver.gpus)} GPUs, and torch {seen['torch']} sees none: {why}")
    ground.need_gpu()
    return (
        f"torch {seen['torch']}, CUDA {seen['cuda']}, NCCL {seen['nccl']}, bf16 {seen['bf16']}, "
        f"compute capability {seen['capability']}: {', '.join(ground.torch.gpus)}"
    )


def _refusals(ground: Ground) -> str:
    _driver(ground)
    ground.need_torch()
    count = len(ground.torch.gpus or ground.driver.gpus)
    seen = []
    for what, workers, env, words in (
        (f"{count + 1} nodes", count, {}, ("workers 0", "NPROC_PER_NODE", "GPUS_PER_NODE=0")),
        (f"{count + 1} ranks", 0, {"NPROC_PER_NODE": str(count + 1)}, ("GPUS_PER_NODE=all",)),
    ):
        # Without the ground's settings, which let launches pass that have no GPU.
        launched = ground.launcher.launch("pytorch", workers, "steps.py", env=env, limit_s=60)
        missing = [word for word in words if word not in launched.text]
        if launched.code != BAD_SETTINGS or "started:" in launched.text or missing:
            lacks = f", without the words {', '.join(missing)}" if missing else ""
            raise RedError(f"{what} on {count} GPUs: {launched.code}{lacks}: {launched.last}")
        seen.append(f"{what}: 78: {launched.last}")
    return "; ".join(seen)


STEPS = ("collectives", "ddp", "fsdp", "precision", "compile")


def _step(name: str) -> Callable[[Ground], str]:
    def climb(ground: Ground) -> str:
        ground.need_torch()
        if name == "compile" and (why_not := _why_not_compile(ground)):
            raise NotHereError(why_not)
        # One launch for all steps: importing torch costs more than most of them.
        if "steps" not in ground.kept:
            wanted = [step for step in ground.steps if step != "compile" or not _why_not_compile(ground)]
            ground.kept["steps"] = ground.launch("steps.py", *wanted, limit_s=180)
        told = ground.told(ground.kept["steps"], name, ground.ranks)[0]
        known = {"name", "rank", "right", "seconds"}
        seen = ", ".join(f"{key} {value}" for key, value in told.items() if key not in known)
        return f"{ground.where}: {seen} ({told['seconds']} s of the steps' launch)"

    return climb


def _why_not_compile(ground: Ground) -> str:
    if not compiler(for_gpu=bool(ground.gpus)):
        return "no C compiler" if ground.gpus else "no C++ compiler"
    return "" if ground.torch.has_headers else "no headers of Python (Python.h)"


def _resume(ground: Ground) -> str:
    ground.need_torch()
    with tempfile.TemporaryDirectory() as folder:
        seen = []
        for steps, *more in ((6, "3"), (9,)):
            launched = ground.launch("resume.py", folder, str(steps), *more, env={"MAX_RESTARTS": "1"})
            told = ground.told(launched, "resume", ground.ranks)[0]
            seen.append((told["begun_at"], told["ended_at"]))
    if seen != [(3, 6), (6, 9)]:
        raise RedError(f"steps from and to: {seen}, and not 3 to 6 after the kill, then 6 to 9")
    return f"{ground.where}: killed before step 3 of 6, went on at 3; a second launch at 6 of 9; the same as in one go"


def _one_gpu(ground: Ground) -> str:
    ground.need_gpu()
    launched = ground.launch("share.py", "gloo", env={"NPROC_PER_NODE": "2", "GPUS_PER_NODE": "all"})
    told = ground.told(launched, "share", 2)[0]
    return f"{told['world']} ranks on one {told['device']} with {told['backend']}: sums and gradients are right"


def _one_gpu_nccl(ground: Ground) -> str:
    ground.need_gpu()
    launched = ground.launch("share.py", "nccl", env={"NPROC_PER_NODE": "2", "GPUS_PER_NODE": "all"})
    if not launched.code or "Duplicate GPU" not in launched.text:
        ground.launcher.keep(launched)
        raise RedError(f"no refusal that names a duplicate GPU: {launched.code}: {launched.last}")
    return launched.last


def _memory(ground: Ground) -> str:
    ground.need_gpu()
    launched = ground.launch("memory.py")
    if launched.code != 1 or "out of memory" not in launched.last:
        ground.launcher.keep(launched)
        raise RedError(f"{launched.code}: {launched.last}")
    return launched.last


def _library(name: str, *packages: str, env: dict[str, str] | None = None) -> Callable[[Ground], str]:
    def climb(ground: Ground) -> str:
        ground.need_torch()
        package = ground.package(*packages)
        launched = ground.launch("libraries.py", name, env=env, limit_s=90)
        told = ground.told(launched, name, ground.ranks)
        kind = "cuda" if ground.gpus else "cpu"
        if any(one["world"] != ground.ranks or not one["device"].startswith(kind) for one in told):
            raise RedError(f"not one rank for each device: {told}")
        return f"{package}: world {told[0]['world']} on {kind}, the loss fell"

    return climb


def _dask(ground: Ground) -> str:
    ground.need_gpu()
    ground.of_framework("dask", "distributed")
    cupy = ground.package(*("cupy", "cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x"))
    told = ground.told(ground.launch("dask_cupy.py", framework="dask", workers=1), "dask", 1)[0]
    return f"{cupy}: {told['device']}; the worker sees {told['devices']}"


def _tensorflow(ground: Ground) -> str:
    package = ground.of_framework("tensorflow", "tensorflow", "tensorflow-cpu")
    launched = ground.launch("tensorflow_fit.py", framework="tensorflow", limit_s=90)
    told = ground.told(launched, "tensorflow", 1)[0]
    if told["with_cuda"] and ground.gpus and told["gpus"] != ground.gpus:
        raise RedError(f"{package} is built with CUDA and sees {told['gpus']} of {ground.gpus} GPUs")
    return f"{package}, with CUDA: {told['with_cuda']}; GPUs {told['gpus']}, replicas {told['replicas']}"


def _horovod(ground: Ground) -> str:
    package = ground.of_framework("horovod", "horovod")
    launched = ground.launch("horovod_sum.py", framework="horovod", limit_s=90)
    told = ground.told(launched, "horovod", ground.ranks)[0]
    return f"{package}: size {told['world']}, built with NCCL: {told['nccl']}; tensors on GPUs: {told['on_gpu']}"


def _ray(ground: Ground) -> str:
    package = ground.of_framework("ray", "ray")
    told = ground.told(ground.launch("ray_task.py", framework="ray", limit_s=90), "ray", 1)[0]
    if told["gpus"] != ground.gpus:
        raise RedError(f"Ray counts {told['gpus']} GPUs, torch {ground.gpus}")
    return f"{package}: {told['gpus']} GPUs; a task with one sees {told['devices'] or 'none'} ({told['visible']})"


def _docker(ground: Ground) -> str:
    ground.need_gpu()
    if why_not := engine_gpus():
        raise NotHereError(why_not)
    launched = ground.launch(
        "steps.py", "collectives", env={"GPUS": "all"}, options=("--backend", "docker"), limit_s=120
    )
    if launched.code and "make build-pytorch" in launched.last:
        raise NotHereError(launched.last)
    told = ground.told(launched, "collectives", ground.ranks)[0]
    return f"world {told['world']} with {told['backend']} in a container"


RUNGS = (
    Rung("driver", "`nvidia-smi` names the GPUs.", _driver),
    Rung("torch", "torch sees the GPUs that the driver names.", _torch),
    Rung("refusals", "More nodes that train, or more ranks on a node, than GPUs are refused with 78.", _refusals),
    Rung(
        "collectives", "`pytorch 0` has one rank for each GPU, and NCCL adds up what ranks have.", _step("collectives")
    ),
    Rung("ddp", "DDP leaves equal parameters on all ranks.", _step("ddp")),
    Rung("fsdp", "FSDP (`fully_shard`) keeps a part of the parameters on each rank.", _step("fsdp")),
    Rung("precision", "Autocast computes in bf16, and in fp16 with `GradScaler`.", _step("precision")),
    Rung("compile", "`torch.compile` computes the same; it needs a compiler and Python's headers.", _step("compile")),
    Rung("resume", "A rank that is killed, and a second launch, go on at the last checkpoint.", _resume),
    Rung("one-gpu", "Two ranks share one GPU with gloo and `GPUS_PER_NODE=all`.", _one_gpu),
    Rung("one-gpu-nccl", "NCCL refuses two ranks on one GPU.", _one_gpu_nccl),
    Rung("memory", "A rank that runs out of GPU memory ends the launch with 1, and the last line says so.", _memory),
    Rung(
        "lightning",
        "Lightning's `Trainer` trains on all GPUs.",
        _library("lightning", "lightning", "pytorch-lightning"),
    ),
    Rung("transformers", "Transformers' `Trainer` trains on all GPUs.", _library("transformers", "transformers")),
    Rung(
        "accelerate",
        "`LAUNCHER=accelerate` trains on all GPUs.",
        _library("accelerate", "accelerate", env={"LAUNCHER": "accelerate"}),
    ),
    Rung("dask", "A task of Dask computes on a GPU with CuPy.", _dask),
    Rung("tensorflow", "A TensorFlow that is built with CUDA takes all GPUs of its node.", _tensorflow),
    Rung("horovod", "Horovod has one rank for each GPU.", _horovod),
    Rung("ray", "Ray counts the GPUs, and a task with `num_gpus=1` gets one.", _ray),
    Rung("docker", "`GPUS=all` hands the GPUs to containers.", _docker),
)
