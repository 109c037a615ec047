"""Final files of a training: weights, resolved configuration, history, metadata."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polarvrp.config.training import TrainConfig
from polarvrp.files import write_text
from polarvrp.machine import card_identity, device_name, versions
from polarvrp.model.policy import Policy
from polarvrp.model.precision import trains_in_bfloat16
from polarvrp.model.saving import save_policy
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, parse_train_spec
from polarvrp.training.checkpoints import Position
from polarvrp.training.constants import constants_of
from polarvrp.training.history import write_history
from polarvrp.training.resolved import resolved_config


def write_outputs(
    output: Path,
    run: str,
    spec: Mapping[str, Any],
    policy: Policy,
    position: Position,
    engine: str,
    scale: str | None = None,
) -> None:
    """Write ``output`` and, beside it, ``config.yaml``, ``history.parquet`` and ``metadata.json``, weights last.

    Args:
        output: ``weights.safetensors``.
        run: Name of the run.
        spec: What it depends on.
        policy: The trained network.
        position: Its history and elapsed time.
        engine: Level that trained it.
        scale: Of its study, None where it is not known.
    """
    import yaml  # a bare machine with a card lacks it, and finishes no training

    folder = output.parent
    folder.mkdir(parents=True, exist_ok=True)
    config, named = parse_train_spec(spec)[1], parse_run(run)
    metadata = {
        "run": run,
        "backbone": named.backbone,
        "encoder": named.encoder,
        "paradigm": named.paradigm,
        "num_customers": named.num_customers,
        "seed": named.seed,
        "scale": scale,
        **training_facts(policy, config, engine),
        "epochs": len(position.history),
        "total_seconds": position.elapsed_s,
        "versions": versions(),
        "git_revision": _git_revision(),
        "spec": dict(spec),
        "fingerprint": fingerprint(spec),
    }
    resolved = resolved_config(run, spec, policy.config, str(metadata["precision"]))
    resolved["constants"] = constants_of(policy.config, config)
    write_text(folder / "config.yaml", yaml.safe_dump(resolved, sort_keys=False))
    provenance = {
        key: metadata[key]
        for key in ("run", "spec", "fingerprint", "versions", "git_revision", "device", "card", "engine", "precision")
    }
    write_history(folder / "history.parquet", position.history, provenance)
    write_text(folder / "metadata.json", json.dumps(metadata, indent=2) + "\n")
    save_policy(output, policy, provenance)


def training_facts(policy: Policy, config: TrainConfig, engine: str) -> dict[str, Any]:
    """Size of a network and where it is trained: ``parameters``, ``device``, ``card``, ``engine`` and ``precision``."""
    device = next(policy.parameters()).device
    return {
        "parameters": sum(parameter.numel() for parameter in policy.parameters()),
        "device": device_name(device),
        "card": card_identity(device),
        "engine": engine,
        "precision": "bfloat16" if trains_in_bfloat16(device, config.precision) else "float32",
    }


def _git_revision() -> str | None:
    """Commit of the source tree; None outside its repository, which may be an environment in somebody else's."""
    module = Path(__file__)
    git = ["git", "-C", str(module.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", module.name], capture_output=True, check=True)
        return subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
