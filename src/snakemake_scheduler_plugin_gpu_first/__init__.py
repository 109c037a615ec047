"""Snakemake scheduler ``gpu-first``: cores are kept for the next jobs of free GPUs, all others are filled.

Snakemake's own schedulers start whatever fits. A job of one core fits as soon as a core is free, a training of many
cores only once that many are free at the same moment: solvers of one core each keep it, and its GPU, waiting until
they run out. On a cluster the same holds for the number of submitted jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.interfaces.jobs import JobSchedulerInterface as Job

GPU = "gpu"
"""The resource, as rules and profiles of this project name it."""


class Scheduler(SchedulerBase):  # type: ignore[misc]
    """Starts jobs for GPUs first, then what these wait for, then others as far as they leave room for every free GPU.

    Within each of the three, jobs of higher priority come first.
    """

    def __post_init__(self) -> None:
        self._everything: dict[str, int] | None = None

    def select_jobs(
        self,
        selectable_jobs: Iterable[Job],
        remaining_jobs: Iterable[Job],
        available_resources: Mapping[str, Any],
        input_sizes: Mapping[Any, Any],
    ) -> list[Job]:
        """Jobs to start now.

        Args:
            selectable_jobs: Those whose inputs exist.
            remaining_jobs: Those that neither run nor ended, the selectable ones included.
            available_resources: What no job uses at the moment: ``_cores``, ``gpu``, ``_nodes`` on a cluster.
            input_sizes: Not used.
        """
        free = dict(available_resources)
        if self._everything is None:  # the first call: nothing runs yet
            self._everything = dict(free)
        ready = sorted(selectable_jobs, key=lambda job: -job.priority)
        waiting = self._waiting_for_gpu(remaining_jobs)
        needed = {other for job in waiting for other in self.dag.job_dependencies(job)}
        others = [job for job in ready if not _amount(job, GPU) and job not in needed]

        chosen = _take((job for job in ready if _amount(job, GPU)), free, {})
        kept = _largest([job for job in waiting if job not in chosen], free.get(GPU, 0), free)
        chosen += _take((job for job in ready if job in needed), free, {})
        chosen += _take(others, free, kept)
        if not chosen and free == self._everything:
            # Nothing runs, and no job for a GPU can come: what it needs has failed. What was kept is for the others.
            chosen = _take(others, free, {})
        return chosen

    def _waiting_for_gpu(self, remaining: Iterable[Job]) -> list[Job]:
        """Jobs that could be next on a GPU: sets may be missing that they need, but no result of a job on a GPU."""
        unfinished = {job for job in self.dag.needrun_jobs() if _amount(job, GPU)}
        return [job for job in remaining if job in unfinished and unfinished.isdisjoint(self.dag.job_dependencies(job))]


def _largest(jobs: Iterable[Job], count: int, resources: Iterable[str]) -> dict[str, int]:
    """What ``count`` of the jobs may take together, at most, of each resource."""
    return {name: sum(sorted((_amount(job, name) for job in jobs), reverse=True)[:count]) for name in resources}


def _take(jobs: Iterable[Job], free: dict[str, int], kept: Mapping[str, int]) -> list[Job]:
    """Those of ``jobs``, in their order, that fit into ``free`` less ``kept``; ``free`` becomes what is left."""
    taken = []
    for job in jobs:
        takes = {name: amount for name in free if (amount := _amount(job, name))}
        if all(free[name] - kept.get(name, 0) >= amount for name, amount in takes.items()):
            taken.append(job)
            for name, amount in takes.items():
                free[name] -= amount
    return taken


def _amount(job: Job, resource: str) -> int:
    return int(job.scheduler_resources.get(resource, 0))
