"""Specifications of every run of both scales, as the stored list has them.

``python tests/helpers/specifications.py`` writes the list anew; only after a code version was bumped on purpose, since
whatever changes in it is computed again by everybody.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from polarvrp.config.loading import load_study
from polarvrp.study import specs
from polarvrp.study.experiments import ablation_runs, study_runs
from polarvrp.study.runs import parse_run

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "study" / "specifications.json"
SOME_VARIANTS = ("CVRP", "MDOVRPMBLTW")


def current_specifications() -> dict[str, Any]:
    """Training specifications in full, fingerprints of the others, by ``scale/kind/name``."""
    return {
        f"{scale}/{kind}/{name}": entry
        for scale in ("paper", "quick")
        for kind, entries in _of_scale(scale).items()
        for name, entry in entries.items()
    }


def _of_scale(scale: str) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "own.yaml"
        own.write_text(f"scale: {scale}\n", encoding="utf-8")
        study = load_study(own, ROOT / "config")
    smallest, sizes = study.sizes[0].num_customers, [size.num_customers for size in study.sizes]
    extra = [parse_run(f"polarnet-ple-polar-n{smallest}{tail}") for tail in ("-all-s0", "-s3")]
    runs = list(dict.fromkeys([*study_runs(study), *ablation_runs(study), *extra]))
    return {
        "train": {run.name: json.loads(specs.canonical(specs.train_spec(study, run))) for run in runs},
        "evaluation": {run.name: specs.fingerprint(specs.evaluation_spec(study, run)) for run in runs},
        "set_x": {run.name: specs.fingerprint(specs.set_x_spec(study, run)) for run in runs},
        "dataset": {
            f"{split}/{variant}-n{size}": specs.fingerprint(specs.dataset_spec(study, split, variant, size))
            for split in ("test", "validation")
            for size in sizes
            for variant in SOME_VARIANTS
        },
        "reference": {
            f"{solver}/{variant}-n{size}": specs.fingerprint(specs.reference_spec(study, "test", solver, variant, size))
            for solver in ("pyvrp", "ortools")
            for size in sizes
            for variant in SOME_VARIANTS
        },
    }


def write_specifications(found: dict[str, Any]) -> None:
    """Write the list, one specification a line, so that a change of one shows as one line."""
    lines = (f"{json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in sorted(found.items()))
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write_specifications(current_specifications())
