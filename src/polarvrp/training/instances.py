"""What training batches are drawn from: the built-in generator, a user's own one, or the instances of files."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from polarvrp.config.training import TrainConfig, TrainingInstances
from polarvrp.environment.obstacles import obstacles
from polarvrp.errors import ConfigError, DataError
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.instances import INSTANCE_ARRAYS, Instances, NodeArrays, to_tensors
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.variants import VARIANTS, Variant
from polarvrp.study.instances import generator_path, instances_spec, source_digest

logger = logging.getLogger(__name__)


class InstanceSource(Protocol):
    """Where batches come from.

    Attributes:
        variants: What is drawn, names of variants of a stage.
    """

    @property
    def variants(self) -> tuple[str, ...]: ...

    def draw(
        self, config: TrainConfig, batch_size: int, generator: torch.Generator, variants: Sequence[str]
    ) -> Instances[Tensor]:
        """One batch on the device of ``generator``, whose state alone determines it.

        Args:
            config: Of the stage: its size, and whether each instance draws its own variant.
            batch_size: Instances of the batch.
            generator: Source of all randomness.
            variants: Those to draw from, of one number of depots.
        """
        ...


@dataclass(frozen=True, slots=True)
class GeneratedInstances:
    """Fresh instances of a generator.

    Attributes:
        variants: What is drawn.
        generate: Called as ``torch_generator.generate_batch``, which is the built-in one.
        name: Of a user's own generator, for messages.
    """

    variants: tuple[str, ...]
    generate: Callable[..., Instances[Tensor]] = generate_batch
    name: str | None = None

    def draw(
        self, config: TrainConfig, batch_size: int, generator: torch.Generator, variants: Sequence[str]
    ) -> Instances[Tensor]:
        """One batch.

        Raises:
            DataError: If a user's own generator gives another batch than it was asked for.
        """
        size, device = config.num_customers, generator.device
        batch = self.generate(size, batch_size, generator, device, variants, config.mixed_batches)
        if self.name is not None:
            depots = VARIANTS[variants[0]].num_depots
            got = (len(batch), batch.num_customers, batch.num_depots, batch.locs.device.type)
            wanted = (batch_size, size, depots, device.type)
            if got != wanted:
                raise DataError(
                    f"generator {self.name} must give {batch_size} instances of {size} customers and {depots} "
                    f"depot(s) on {device.type}, got {got[0]}, {got[1]}, {got[2]} on {got[3]}"
                )
        return batch


class StoredInstances:
    """Instances of files, drawn with replacement: each alike, or of one variant a batch.

    Args:
        sets: Those of one size, by variant; each on the device.
    """

    def __init__(self, sets: dict[str, Instances[Tensor]]) -> None:
        self.variants = tuple(sets)
        self._sets = sets
        self._joined: dict[tuple[str, ...], tuple[Instances[Tensor], Tensor, Tensor]] = {}

    def draw(
        self, config: TrainConfig, batch_size: int, generator: torch.Generator, variants: Sequence[str]
    ) -> Instances[Tensor]:
        """One batch; nothing of it waits for main memory, so that it can be captured."""
        instances, firsts, counts = self._of(tuple(variants))
        device = generator.device
        if config.mixed_batches:
            rows = torch.randint(len(instances), (batch_size,), generator=generator, device=device)
        else:
            chosen = torch.randint(len(counts), (1,), generator=generator, device=device)
            share = torch.rand(batch_size, generator=generator, device=device, dtype=torch.float64)
            rows = firsts[chosen] + (share * counts[chosen]).long().clamp(max=counts[chosen] - 1)
        return instances[rows]

    def _of(self, variants: tuple[str, ...]) -> tuple[Instances[Tensor], Tensor, Tensor]:
        """All instances of some variants, and the first and the number of each variant's."""
        if variants not in self._joined:
            parts = [self._sets[name] for name in variants]
            device = parts[0].locs.device
            counts = torch.tensor([len(part) for part in parts], device=device)
            self._joined[variants] = (_joined(parts), counts.cumsum(0) - counts, counts)
        return self._joined[variants]


def require_instances(config: TrainConfig) -> None:
    """Refuse files of a user's own that a training cannot use, before its first step.

    Args:
        config: Of all stages; files of a size that none of them has are left out.

    Raises:
        DataError: If files changed since the training was specified, are unusable, hold a variant that no stage trains
            on or an instance without a solution, or nothing that a stage could train on or make batches of.
    """
    named = config.instances
    if named is None or named.generator is not None:
        return
    stages = [config.for_stage(number) for number in range(len(config.stages))]
    held: dict[int, dict[str, set[int]]] = {stage.num_customers: {} for stage in stages}  # numbers of depots
    for path, instances in _sets(named):
        if instances.num_customers not in held:
            continue
        variants = _by_variant(instances)
        for variant in variants:
            if variant not in config.drawn_variants:
                raise DataError(
                    f"{path} holds {variant}, on which no stage of this run trains; name the run -all, or drop the file"
                )
            held[instances.num_customers].setdefault(variant, set()).add(instances.num_depots)
        _require_solvable(path, instances)
    for stage in stages:
        found = held[stage.num_customers]
        depots = [found[name] for name in stage.stages[0].variants if name in found]
        if not depots:
            raise _nothing_for(stage, named)
        _require_batches(stage, set().union(*depots))


def source_of(config: TrainConfig, device: torch.device) -> InstanceSource:
    """Where the batches of a stage come from; of files those instances that have its size and variants.

    Args:
        config: Of the stage alone.
        device: Where they are needed.

    Raises:
        ConfigError: If there is no such generator, or it is not callable.
        DataError: If files changed since the training was specified, are unusable, or hold nothing for the stage.
    """
    named, variants = config.instances, config.stages[0].variants
    if named is None:
        return GeneratedInstances(variants)
    if named.generator is not None:
        return GeneratedInstances(variants, _load_generator(named), named.generator)
    parts: dict[str, list[Instances[Tensor]]] = {}
    for path, instances in _sets(named):
        if instances.num_customers != config.num_customers:
            logger.info("%s is left out: %d customers, not %d", path, instances.num_customers, config.num_customers)
            continue
        for variant, some in _by_variant(instances).items():
            if variant in variants:
                parts.setdefault(variant, []).append(to_tensors(some, device))
            else:
                logger.info("%s of %s is left out: another stage trains on it", variant, path)
    if not parts:
        raise _nothing_for(config, named)
    return StoredInstances({name: _joined(parts[name]) for name in variants if name in parts})


def _sets(named: TrainingInstances) -> Iterator[tuple[Path, Instances[NodeArrays]]]:
    """The files of a training and what they hold.

    Raises:
        DataError: If one changed since the training was specified, or is unusable.
    """
    for name, digest in named.files.items():
        path = Path(name)
        if source_digest(path) != digest:
            raise DataError(f"{path} holds other instances than when the training began; start it again")
        yield path, read_instances(path)


def _require_solvable(path: Path, instances: Instances[NodeArrays]) -> None:
    """Refuse a file with an instance that has no solution: the first step that draws it would not come to its end."""
    for index, reason in enumerate(obstacles(instances, torch.device("cpu"))):
        if reason is not None:
            raise DataError(f"{path}: instance {index} has no solution, {reason}; drop it")


def _require_batches(stage: TrainConfig, depots: set[int]) -> None:
    """Refuse instances of two numbers of several depots, of which no batch can be made."""
    several = sorted(depots - {1})
    if len(several) > 1:
        raise DataError(
            f"training.instances of {stage.num_customers} customers have {' and '.join(map(str, several))} depots; "
            "keep those of one number, beside any of one depot"
        )


def _nothing_for(stage: TrainConfig, named: TrainingInstances) -> DataError:
    """What to raise for a stage that finds no instances in the files."""
    wanted = f"{stage.num_customers} customers of {', '.join(stage.stages[0].variants)}"
    return DataError(f"training.instances hold none of {wanted}: {', '.join(named.files)}")


def _load_generator(named: TrainingInstances) -> Callable[..., Instances[Tensor]]:
    assert named.generator is not None
    if instances_spec(named.generator)["sha256"] != named.sha256:
        raise DataError(f"generator {named.generator} changed since the training began; start it again")
    module, _, attribute = generator_path(named.generator).partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"generator {named.generator} cannot be imported ({error})") from error
    if not callable(found):
        raise ConfigError(f"generator {named.generator} must be a function, got {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _by_variant(instances: Instances[NodeArrays]) -> dict[str, Instances[NodeArrays]]:
    """Instances of a file, which may mix variants, apart."""
    kinds, kind_of = np.unique(instances.flags, axis=0, return_inverse=True)
    names = [Variant.of_flags(flags).name for flags in kinds.tolist()]
    return {name: instances[np.flatnonzero(kind_of.ravel() == number)] for number, name in enumerate(names)}


def _joined(parts: Sequence[Instances[Tensor]]) -> Instances[Tensor]:
    """Instances of one size and number of depots, one set after the other."""
    if len(parts) == 1:
        return parts[0]
    arrays = {name: torch.cat([getattr(part, name) for part in parts]) for name in INSTANCE_ARRAYS}
    return Instances(**arrays, num_depots=parts[0].num_depots, capacity=parts[0].capacity)
