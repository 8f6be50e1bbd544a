"""Threads and GPUs of each worker, on paper."""

from __future__ import annotations

import pytest

from core.errors import UserError
from grpoctl.executors.slots import THREAD_VARIABLES, Slot, cpu_slots, gpu_slots


@pytest.mark.parametrize(
    ("workers", "cores", "threads"),
    [(1, 8, 8), (2, 8, 4), (3, 8, 2), (8, 8, 1), (9, 8, 1), (2, 2, 1)],  # 3 x 2 <= 8 < 3 x 3
)
def test_workers_share_the_cores(workers: int, cores: int, threads: int) -> None:
    slots = cpu_slots(workers, cores)
    assert [(slot.number, slot.threads, slot.device) for slot in slots] == [(n, threads, None) for n in range(workers)]
    assert workers * threads <= max(cores, workers)


@pytest.mark.parametrize(
    ("gpus", "per_gpu", "visible", "devices"),
    [
        ((0, 1), 1, None, ["0", "1"]),
        ((0, 1), 2, None, ["0", "1", "0", "1"]),  # one on each before the second on any
        ((1,), 1, "4,6", ["6"]),
        ((0, 1), 1, "GPU-8f3a, MIG-77", ["GPU-8f3a", "MIG-77"]),
    ],
)
def test_each_worker_sees_one_gpu(gpus: tuple[int, ...], per_gpu: int, visible: str | None, devices: list[str]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    slots = gpu_slots(gpus, per_gpu, environ=environ, cores=8)
    assert [slot.device for slot in slots] == devices
    assert {slot.threads for slot in slots} == {8 // len(devices)}
    assert [slot.environment(environ)["CUDA_VISIBLE_DEVICES"] for slot in slots] == devices


@pytest.mark.parametrize(("gpus", "visible"), [((2,), "4,6"), ((0,), ""), ((1, 1), "4,6"), ((0, 0), None)])
def test_a_gpu_that_is_not_there_or_named_twice_is_refused(gpus: tuple[int, ...], visible: str | None) -> None:
    with pytest.raises(UserError, match="GPU"):
        gpu_slots(gpus, environ={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


def test_a_users_own_smaller_number_of_threads_stays() -> None:
    slot = Slot(number=0, threads=4)
    ours = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "16", "RAYON_NUM_THREADS": "4,2", "CUDA_VISIBLE_DEVICES": "7"}
    theirs = slot.environment(ours)
    assert {name: theirs[name] for name in THREAD_VARIABLES} == {
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4", "RAYON_NUM_THREADS": "4",
    }  # fmt: skip
    assert theirs["CUDA_VISIBLE_DEVICES"] == "7"  # no GPU was asked for: what is visible stays so
