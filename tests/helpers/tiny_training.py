"""A training of seconds for the tests that run whole trainings."""

from typing import Any

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
            "instances_per_epoch": 22,
            "batch_size": 4,
            "learning_rate": 0.001,
            "milestones": [2],
            "refinement_start_epoch": 1,
            "validation_instances": 2,
            "precision": "float32",
            **training,
        },
    }
