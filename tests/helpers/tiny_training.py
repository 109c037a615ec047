"""A training of seconds for the tests that run whole trainings."""

from pathlib import Path
from typing import Any

import pytest

from polarvrp.cli.main import main
from polarvrp.training import trainer

RUN = "polarnet-ple-polar-n8-s0"


def tiny_spec(**training: Any) -> dict[str, Any]:
    """Its specification, with changed values of the training."""
    return {
        "code": 1,
        "model": {
            "backbone": "polarnet",
            "encoder": "ple",
            "width": 32,
            "heads": 4,
            "layers": 2,
            "feedforward_width": 32,
        },
        "training": {
            "paradigm": "polar",
            "num_customers": 8,
            "epochs": 4,
            "instances_per_epoch": 10,
            "batch_size": 4,
            "learning_rate": 0.001,
            "milestones": [2],
            "refinement_start_epoch": 1,
            "validation_instances": 2,
            "precision": "float32",
            **training,
        },
    }


def validation_sets(folder: Path, *variants: str) -> list[Path]:
    """Its validation sets, made in a folder."""
    paths = [folder / f"{variant}-n8.npz" for variant in variants]
    for variant, path in zip(variants, paths, strict=True):
        words = ["--variant", variant, "--num-customers", "8", "--instances", "2", "--seed", "4321"]
        assert main(["generate", *words, "--output", str(path)]) == 0
    return paths


def stop_after(patch: pytest.MonkeyPatch, steps: int) -> None:
    """Ask each process of a training to stop once it has made so many steps."""

    class CountingRequest(trainer.StopRequest):
        made = 0

        @property
        def requested(self) -> bool:
            self.made += 1
            return self.made > steps

    patch.setattr(trainer, "StopRequest", CountingRequest)
