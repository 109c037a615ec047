"""In which order the workflow's jobs run: the real rules, commands that only pass time, and a clock."""

import itertools
from dataclasses import replace

import pytest

from helpers.snakemake import Workflow
from helpers.stub_commands import Span, StubCommands

STUDY = """
scale: paper
variants: [CVRP, VRPMB]
sizes:
  - {num_customers: 50, batch_size: 256, reference_seconds: 10.0}
transfer_size: 50
backbones: [mtpomo, routefinder, polarnet]
grid_backbones: []
experiments: [in_distribution]
"""
CHUNKS = 2 * 2 * 20
"""Variants, solvers, and parts of 50 of a set's 1,000 instances."""

SECONDS = {"generate": 0.1, "reference": 2.0, "train": 0.8, "evaluate": 0.2}

pytestmark = pytest.mark.workflow


def schedule(workflow: Workflow, *words: str, cores: int = 40) -> list[Span]:
    """Jobs of a study, of the targets and with the options in ``words``."""
    stubs = StubCommands(workflow.folder, SECONDS)
    study = workflow.folder / "study.yaml"
    study.write_text(STUDY)
    run = replace(workflow, variables=stubs.environment())(*words, "--cores", str(cores), "--configfile", study)
    assert run.code == 0, run.output[-3000:]
    return stubs.spans()


def most_at_once(spans: list[Span]) -> int:
    ends = sorted([(span.begin_s, 1) for span in spans] + [(span.end_s, -1) for span in spans])
    running = most = 0
    for _, change in ends:
        running += change
        most = max(most, running)
    return most


def test_gpu_is_busy_from_the_start_to_the_end_of_its_work_while_references_fill_the_other_cores(
    workflow: Workflow,
) -> None:
    spans = schedule(workflow, "references", "evaluate")
    on_gpu = [span for span in spans if span.command in ("train", "evaluate")]
    chunks = [span for span in spans if span.command == "reference"]
    assert len(chunks) == CHUNKS
    assert [span.command for span in on_gpu] == ["train"] * 3 + ["evaluate"] * 3
    assert most_at_once(on_gpu) == 1
    # The first training waits for its sets, not for chunks; on a busy machine the first of them end meanwhile.
    assert sum(chunk.end_s < on_gpu[0].begin_s for chunk in chunks) <= 24
    # 16 of the 40 cores are the GPU's, until it has no work left: no job of it waits for the end of a chunk.
    beside = [chunk for chunk in chunks if chunk.begin_s < on_gpu[-1].begin_s]
    assert 20 <= most_at_once(beside) <= 24
    for before, after in itertools.pairwise(on_gpu):  # a pause is Snakemake's own, never as long as a chunk
        assert not any(before.end_s < chunk.begin_s and chunk.end_s < after.begin_s for chunk in chunks)


def test_solvers_run_beside_several_gpus_that_are_all_busy(workflow: Workflow) -> None:
    """Three GPUs have 18 of 24 cores; solvers have the rest, though each GPU could use all of its 8."""
    spans = schedule(workflow, "references", "train", "--resources", "gpu=3", cores=24)
    trainings = [span for span in spans if span.command == "train"]
    chunks = [span for span in spans if span.command == "reference"]
    assert most_at_once(trainings) == len(trainings) == 3
    beside = [chunk for chunk in chunks if chunk.begin_s < min(training.end_s for training in trainings)]
    assert 0 < most_at_once(beside) <= 6
