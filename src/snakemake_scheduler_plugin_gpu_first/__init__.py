"""Snakemake scheduler ``gpu-first``: cores are kept for the next jobs of free GPUs, all others are filled.

Snakemake's own schedulers start whatever fits. A job of one core fits as soon as a core is free, a training of many
cores only once that many are free at the same moment: solvers of one core each keep it, and its GPU, waiting until
they run out. On a cluster the same holds for the number of submitted jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Timer
from typing import Any

from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.interfaces.jobs import JobSchedulerInterface as Job

GPU = "gpu"
"""The resource, as rules and profiles of this project name it."""

TAKEN_BY_EVERY_JOB = ("_cores", "_nodes")
"""Resources of which every job of this project takes some; the second one is limited on a cluster only."""


class Scheduler(SchedulerBase):  # type: ignore[misc]
    """Starts jobs for GPUs first, then what these wait for, then others as far as they leave room for every free GPU.

    Within each of the three, jobs of higher priority come first. It is called after every job with all that are left,
    so what does not change is kept from call to call, and a call does little more than look each job up.
    """

    def __post_init__(self) -> None:
        self._everything: dict[str, int] | None = None
        self._rank: dict[Job, int] = {}  # of every job seen so far, the lowest first
        self._on_gpu: set[Job] = set()  # those of them that take a GPU and have not ended

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
            _wake_by_one_timer(self.dag.workflow.scheduler)
        self._look_at([*remaining_jobs, *selectable_jobs])
        ready = sorted(selectable_jobs, key=self._rank.__getitem__)
        waiting = self._waiting_for_gpu(remaining_jobs)
        needed = {other for job in waiting for other in self.dag.job_dependencies(job)}
        others = [job for job in ready if job not in self._on_gpu and job not in needed]

        chosen = _take((job for job in ready if job in self._on_gpu), free, {})
        kept = _largest([job for job in waiting if job not in chosen], free.get(GPU, 0), free)
        chosen += _take((job for job in ready if job in needed), free, {})
        chosen += _take(others, free, kept)
        if not chosen and free == self._everything:
            # Nothing runs, and no job for a GPU can come: what it needs has failed. What was kept is for the others.
            chosen = _take(others, free, {})
        return chosen

    def _look_at(self, jobs: Iterable[Job]) -> None:
        """Keep priority and place of jobs that are new; what has ended on a GPU keeps nobody waiting any more."""
        new = [job for job in jobs if job not in self._rank]
        self._rank.update((job, -job.priority) for job in new)
        self._on_gpu.update(job for job in new if _amount(job, GPU))
        self._on_gpu = {job for job in self._on_gpu if not self.dag.finished(job)}

    def _waiting_for_gpu(self, remaining: Iterable[Job]) -> list[Job]:
        """Jobs that could be next on a GPU: sets may be missing that they need, but no result of a job on a GPU."""
        left = (job for job in remaining if job in self._on_gpu)
        return [job for job in left if self._on_gpu.isdisjoint(self.dag.job_dependencies(job))]


def _wake_by_one_timer(scheduler: Any) -> None:
    """Let Snakemake set no timer while another one is running.

    Where jobs are left that are ready, each of its looks at them ends with a timer for the next, in a second
    (``--max-jobs-per-timespan``), beside the look that the end of a job brings. So with each job that ends there is one
    more timer, and one more look a second (Snakemake 9.27, its pull request 3744).
    """
    pending: list[Timer] = []

    def wake_later(delay: float) -> None:
        if not pending:
            pending.append(Timer(delay, wake))
            pending[0].start()

    def wake() -> None:
        pending.clear()
        scheduler._open_jobs.release()

    scheduler._schedule_reevalutation = wake_later


def _largest(jobs: Iterable[Job], count: int, resources: Iterable[str]) -> dict[str, int]:
    """What ``count`` of the jobs may take together, at most, of each resource."""
    return {name: sum(sorted((_amount(job, name) for job in jobs), reverse=True)[:count]) for name in resources}


def _take(jobs: Iterable[Job], free: dict[str, int], kept: Mapping[str, int]) -> list[Job]:
    """Those of ``jobs``, in their order, that fit into ``free`` less ``kept``; ``free`` becomes what is left."""
    taken = []
    for job in jobs:
        if any(free.get(name, 1) <= kept.get(name, 0) for name in TAKEN_BY_EVERY_JOB):
            break
        takes = {name: amount for name in free if (amount := _amount(job, name))}
        if all(free[name] - kept.get(name, 0) >= amount for name, amount in takes.items()):
            taken.append(job)
            for name, amount in takes.items():
                free[name] -= amount
    return taken


def _amount(job: Job, resource: str) -> int:
    return int(job.scheduler_resources.get(resource, 0))
