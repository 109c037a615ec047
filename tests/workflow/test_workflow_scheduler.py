"""Which jobs the scheduler ``gpu-first`` starts, of a made-up plan."""

from dataclasses import dataclass, field
from threading import Semaphore, active_count
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.scheduling.job_scheduler import JobScheduler

from snakemake_scheduler_plugin_gpu_first import Scheduler


@dataclass(frozen=True)
class Job:
    name: str
    cores: int = 1
    gpu: int = 0
    priority: int = 0
    needs: tuple["Job", ...] = ()
    others: tuple[tuple[str, int], ...] = ()

    @property
    def scheduler_resources(self) -> dict[str, int]:
        return {"_cores": self.cores, "_nodes": 1, "gpu": self.gpu, **dict(self.others)}


@dataclass
class Plan:
    """A plan of which some jobs run, and some ended well or failed."""

    jobs: list[Job]
    free: dict[str, int]
    ended: set[Job] = field(default_factory=set)
    failed: set[Job] = field(default_factory=set)
    running: set[Job] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.snakemake: Any = SimpleNamespace(_open_jobs=Semaphore(0))
        dag: Any = SimpleNamespace(
            finished=self.ended.__contains__,
            job_dependencies=lambda job: job.needs,
            workflow=SimpleNamespace(scheduler=self.snakemake),
        )
        self.scheduler = Scheduler(dag, None, None)

    def start(self) -> set[str]:
        """Names of the jobs that are started now."""
        remaining = [job for job in self.jobs if job not in self.ended | self.failed | self.running]
        ready = [job for job in remaining if self.ended.issuperset(job.needs)]
        chosen = self.scheduler.select_jobs(ready, remaining, dict(self.free), {})
        assert len(set(chosen)) == len(chosen) and set(chosen) <= set(ready)
        self._count(chosen, -1)
        self.running.update(chosen)
        return {job.name for job in chosen}

    def end(self, *jobs: Job, well: bool = True) -> None:
        self._count(jobs, 1)
        self.running.difference_update(jobs)
        (self.ended if well else self.failed).update(jobs)

    def _count(self, jobs: Any, sign: int) -> None:
        for job in jobs:
            for name, amount in job.scheduler_resources.items():
                if name in self.free:
                    self.free[name] += sign * amount
        assert min(self.free.values()) >= 0


SET = Job("set")
CHUNKS = tuple(Job(f"chunk {number}") for number in range(12))
TRAINING = Job("training", cores=4, gpu=1, priority=2, needs=(SET,))
SECOND = Job("second training", cores=4, gpu=1, priority=1, needs=(SET,))
EVALUATION = Job("evaluation", cores=4, gpu=1, needs=(TRAINING,))
ROOM = {"_cores": 10, "_nodes": 100, "gpu": 1}


def started(*chunks: int) -> set[str]:
    return {CHUNKS[number].name for number in chunks}


def number_of_chunks(names: set[str]) -> int:
    return sum(name.startswith("chunk") for name in names)


def test_cores_are_kept_for_a_training_whose_sets_are_still_made() -> None:
    plan = Plan([*CHUNKS, EVALUATION, TRAINING, SET], dict(ROOM))
    first = plan.start()
    assert "set" in first and number_of_chunks(first) == 10 - 1 - 4
    assert plan.start() == set()
    plan.end(SET)
    assert plan.start() == {"training"} | started(5)


def test_jobs_that_a_training_waits_for_may_use_what_is_kept_for_it() -> None:
    sets = tuple(Job(f"set {number}") for number in range(20))
    plan = Plan([*CHUNKS, *sets, Job("training", cores=10, gpu=1, needs=sets)], dict(ROOM))
    assert number_of_chunks(plan.start()) == 0
    assert plan.free["_cores"] == 0


def test_next_training_takes_the_place_of_the_last_before_any_evaluation_or_chunk() -> None:
    plan = Plan([*CHUNKS, EVALUATION, SECOND, TRAINING, SET], dict(ROOM), ended={SET})
    assert plan.start() == {"training"} | started(*range(6))
    plan.end(TRAINING)
    assert plan.start() == {"second training"}
    plan.end(SECOND)
    assert plan.start() == {"evaluation"}
    plan.end(EVALUATION)
    assert plan.start() == started(*range(6, 10)), "nothing is left for the GPU: all cores are for the chunks"


def test_every_free_gpu_keeps_cores_and_no_more_than_it_has_work_for() -> None:
    plan = Plan([*CHUNKS, SECOND, TRAINING, EVALUATION, SET], {**ROOM, "gpu": 2})
    assert number_of_chunks(plan.start()) == 10 - 1 - 2 * 4
    plan.end(SET)
    assert plan.start() == {"training", "second training"} | started(1)
    other = Plan([*CHUNKS, TRAINING, EVALUATION, SET], {**ROOM, "gpu": 2})
    assert number_of_chunks(other.start()) == 10 - 1 - 4


def test_failed_training_keeps_no_cores_for_its_evaluation() -> None:
    plan = Plan([*CHUNKS, EVALUATION, TRAINING, SET], dict(ROOM), ended={SET})
    plan.start()
    plan.end(TRAINING, well=False)
    assert plan.start() == started(*range(6, 10))


def test_what_will_never_come_does_not_keep_the_workflow_from_ending() -> None:
    """The training needs all cores and a set that failed."""
    training = Job("training", cores=10, gpu=1, needs=(SET,))
    plan = Plan([*CHUNKS, training, SET], dict(ROOM))
    assert plan.start() == {"set"}
    plan.end(SET, well=False)
    assert plan.start() == started(*range(10))


def test_places_of_a_cluster_and_memory_are_kept_alike() -> None:
    """Cores are unlimited there, submitted jobs are not."""
    training = Job("training", cores=4, gpu=1, needs=(SET,), others=(("mem", 60),))
    chunks = [Job(f"chunk {number}", others=(("mem", 10),)) for number in range(12)]
    plan = Plan([*chunks, training, SET], {"_cores": 10**9, "_nodes": 8, "gpu": 1, "mem": 100})
    assert number_of_chunks(plan.start()) == 4, "by memory"
    plan = Plan([*chunks, training, SET], {"_cores": 10**9, "_nodes": 4, "gpu": 1, "mem": 1000})
    assert number_of_chunks(plan.start()) == 4 - 1 - 1, "by places"


def test_without_jobs_for_a_gpu_priority_alone_decides() -> None:
    urgent = Job("urgent", cores=9, priority=1)
    plan = Plan([*CHUNKS, urgent], dict(ROOM))
    assert plan.start() == {"urgent"} | started(0)


def test_a_job_is_asked_for_its_resources_once_and_not_each_time_that_another_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of some thousand jobs a call reads the few that it starts; the others are looked up."""
    asked: list[str] = []
    resources = Job.scheduler_resources.fget
    assert resources is not None

    def ask(job: Job) -> dict[str, int]:
        asked.append(job.name)
        return dict(resources(job))

    monkeypatch.setattr(Job, "scheduler_resources", property(ask))
    chunks = [Job(f"chunk {number}") for number in range(500)]
    plan = Plan([*chunks, EVALUATION, TRAINING, SET], dict(ROOM))
    plan.start()
    assert {job.name for job in plan.jobs} == set(asked)
    plan.end(chunks[0])
    asked.clear()
    assert plan.start() == {"chunk 5"}
    assert len(set(asked)) < 5


def test_one_timer_wakes_snakemake_however_often_it_looks() -> None:
    assert hasattr(JobScheduler, "_schedule_reevalutation"), "the method of Snakemake that is replaced"
    plan = Plan([*CHUNKS], dict(ROOM))
    plan.start()
    before, look_again = active_count(), plan.snakemake._schedule_reevalutation
    for _ in range(20):
        look_again(0.05)
    assert active_count() == before + 1
    woken = plan.snakemake._open_jobs
    assert woken.acquire(timeout=10) and not woken.acquire(timeout=0.2)
    look_again(0.0)
    assert woken.acquire(timeout=10), "the next look is timed again"
