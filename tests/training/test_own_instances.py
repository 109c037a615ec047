"""Trainings on a user's own instances, of files or a generator: drawn as said, recorded, refused when changed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from helpers.tiny_training import RUN, stop_after, tiny_spec, validation_sets
from polarvrp.config.loading import load_study
from polarvrp.config.training import TrainConfig
from polarvrp.errors import ConfigError, DataError
from polarvrp.problem.archives import read_arrays, write_arrays
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.instances import Instances
from polarvrp.problem.sets import write_set
from polarvrp.study.instances import instances_spec
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, train_spec
from polarvrp.training.instances import GeneratedInstances, StoredInstances, require_instances, source_of
from polarvrp.training.microbatch import Microbatch
from polarvrp.training.trainer import TrainJob, train

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
MODULE = """
from polarvrp.problem.torch_generator import generate_batch


def clustered(num_customers, batch_size, generator, device, variants, mixed):
    batch = generate_batch(num_customers, batch_size, generator, device, variants, mixed)
    batch.locs.mul_(0.5)
    return batch


def short(num_customers, batch_size, generator, device, variants, mixed):
    return generate_batch(num_customers, batch_size - 1, generator, device, variants, mixed)


number = 3
"""


@pytest.fixture(autouse=True)
def _untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three instances of CVRP and nine of VRPTW with eight customers, two of CVRP with five."""
    sets = (("CVRP", 8, 3), ("VRPTW", 8, 9), ("CVRP", 5, 2))
    paths = [tmp_path / "mine" / f"{variant}-{size}.npz" for variant, size, _ in sets]
    for path, (variant, size, count) in zip(paths, sets, strict=True):
        write_set(path, variant, size, count, seed=77 + count)
    return paths


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that declares a generator; its module's file."""
    (folder := tmp_path / "site").mkdir()
    (module := folder / "town_maps.py").write_text(MODULE)
    (installed := folder / "town_maps-1.0.dist-info").mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: town-maps\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[polarvrp.generators]\ntowns = town_maps:clustered\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "town_maps", raising=False)
    return module


def config_of(instances: Any, **training: Any) -> TrainConfig:
    values = tiny_spec(instances=instances, **training)["training"]
    return TrainConfig.from_mapping(values)


def drawn(source: GeneratedInstances | StoredInstances, config: TrainConfig, count: int, seed: int = 0) -> Tensor:
    batch = source.draw(config, count, torch.Generator().manual_seed(seed), source.variants)
    return batch.locs


def test_stored_instances_are_drawn_alike(files: list[Path]) -> None:
    """A quarter of them is of CVRP; one variant a batch takes each variant in half of the batches."""
    config = config_of(instances_spec([str(path) for path in files]))
    source = source_of(config, CPU)
    assert isinstance(source, StoredInstances) and source.variants == ("CVRP", "VRPTW")
    batch = source.draw(config, 4000, torch.Generator().manual_seed(1), source.variants)
    held = torch.cat([torch.from_numpy(read_instances(path).locs) for path in files[:2]])
    which = (batch.locs[:, None] == held).all(-1).all(-1)
    assert which.sum(1).eq(1).all()
    assert which.float().mean(0).numpy() == pytest.approx([1 / 12] * 12, abs=0.02)
    assert torch.equal(batch.flags[:, 1], which[:, 3:].any(1))
    assert torch.equal(drawn(source, config, 5, seed=3), drawn(source, config, 5, seed=3))
    assert not torch.equal(drawn(source, config, 5, seed=3), drawn(source, config, 5, seed=4))
    apart = config.replace(mixed_batches=False)
    windows = [
        source.draw(apart, 6, torch.Generator().manual_seed(seed), source.variants).flags[:, 1] for seed in range(200)
    ]
    assert all(len(set(batch.tolist())) == 1 for batch in windows)
    assert sum(bool(batch[0]) for batch in windows) / 200 == pytest.approx(0.5, abs=0.1)


def record(patch: pytest.MonkeyPatch) -> list[Tensor]:
    """Coordinates of every instance that a training takes, batch by batch."""
    seen: list[Tensor] = []
    whole = Microbatch.take

    def take(microbatch: Microbatch, instances: Instances[Tensor]) -> None:
        seen.append(instances.locs)
        whole(microbatch, instances)

    patch.setattr(Microbatch, "take", take)
    return seen


@pytest.fixture
def validation(tmp_path: Path) -> list[Path]:
    return validation_sets(tmp_path / "validation", "CVRP")


def job(folder: Path, spec: dict[str, Any], validation: list[Path]) -> TrainJob:
    return TrainJob(RUN, spec, folder / "state", validation, folder / "weights.safetensors", tracking=folder)


@pytest.mark.resume
def test_a_training_takes_its_instances_from_the_files(
    files: list[Path], tmp_path: Path, validation: list[Path]
) -> None:
    """Every one of them, in both microbatches of a refining step, and the same ones after a stop."""
    spec = tiny_spec(instances=instances_spec([str(path) for path in files]), epochs=2)
    held = torch.cat([torch.from_numpy(read_instances(path).locs) for path in files[:2]])
    with pytest.MonkeyPatch.context() as patch:
        seen = record(patch)
        assert train(job(tmp_path / "whole", spec, validation))
    assert len(seen) == 3 + 2 * 3
    for locs in seen:
        assert (locs[:, None] == held).all(-1).all(-1).any(1).all()
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 4)
        assert not train(job(tmp_path / "stopped", spec, validation))
    assert train(job(tmp_path / "stopped", spec, validation))
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    stored = yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())
    assert stored["training"]["instances"]["files"] == spec["training"]["instances"]["files"]


def test_each_stage_takes_the_instances_of_its_size_and_variants(
    files: list[Path], tmp_path: Path, validation: list[Path]
) -> None:
    """Those of other stages are left out of it, a variant that no stage trains on is refused before the first step."""
    stages: list[dict[str, Any]] = [
        {"variants": ["VRPTW"], "paradigm": "po", "epochs": 1},
        {"variants": ["CVRP"], "paradigm": "po", "epochs": 1, "num_customers": 5},
        {"epochs": 1},
    ]
    spec = tiny_spec(instances=instances_spec([str(path) for path in files]), stages=stages)
    with pytest.MonkeyPatch.context() as patch:
        seen = record(patch)
        assert train(job(tmp_path / "whole", spec, validation))
    cvrp, vrptw, small = (torch.from_numpy(read_instances(path).locs) for path in files)
    assert len(seen) == 3 * 3
    for number, held in enumerate((vrptw, small, torch.cat((cvrp, vrptw)))):
        for locs in seen[3 * number : 3 * number + 3]:
            assert (locs[:, None] == held).all(-1).all(-1).any(1).all()

    write_set(other := tmp_path / "mine" / "MDVRP.npz", "MDVRP", 8, 2, 1)
    spec = tiny_spec(instances=instances_spec([str(path) for path in (*files, other)]), stages=stages)
    message = r"MDVRP\.npz holds MDVRP, on which no stage of this run trains; name the run -all, or drop the file"
    with pytest.raises(DataError, match=message):
        train(job(tmp_path / "strange", spec, validation))
    assert not (tmp_path / "strange").exists()
    spec = tiny_spec(instances=instances_spec([str(files[0])]), stages=[*stages[1:], {"variants": ["VRPTW"]}])
    with pytest.raises(DataError, match=r"training\.instances hold none of 5 customers of CVRP: .*CVRP-8\.npz"):
        train(job(tmp_path / "lacking", spec, validation))
    assert not (tmp_path / "lacking").exists()


@pytest.mark.parametrize("name", ["towns", "town_maps:clustered"])
def test_a_training_takes_its_instances_from_a_generator(
    name: str, package: Path, tmp_path: Path, validation: list[Path]
) -> None:
    spec = tiny_spec(instances=instances_spec(name), epochs=1)
    with pytest.MonkeyPatch.context() as patch:
        seen = record(patch)
        assert train(job(tmp_path, spec, validation))
    assert max(float(locs.max()) for locs in seen) <= 0.5


def test_files_and_sources_enter_the_specification_with_digests(
    files: list[Path], package: Path, tmp_path: Path
) -> None:
    """Without the key it is as ever; other content is another training, another order of patterns is none."""
    run = parse_run("polarnet-ple-polar-n10-s0")

    def specification(instances: Any) -> dict[str, Any]:
        own = {"scale": "quick", "training": {"instances": instances}}
        (path := tmp_path / "mine.yaml").write_text(yaml.safe_dump(own))
        return train_spec(load_study(path, ROOT / "config"), run)

    assert "instances" not in specification(None)["training"]
    pattern, first = str(tmp_path / "mine" / "*.npz"), str(files[0])
    spec = json.loads(json.dumps(specification([pattern])))
    assert list(spec["training"]["instances"]["files"]) == sorted(map(str, files))
    assert fingerprint(specification([first, pattern])) == fingerprint(spec)
    arrays = read_arrays(files[0])
    arrays["locs"][0, 1, 0] = 0.5
    write_arrays(files[0], arrays)
    assert fingerprint(specification([pattern])) != fingerprint(spec)
    named = specification("towns")["training"]["instances"]
    assert named["generator"] == "towns" and len(named["sha256"]) == 64
    package.write_text(MODULE + "\n# another version of it")
    assert specification("towns")["training"]["instances"]["sha256"] != named["sha256"]


def test_what_changed_or_does_not_fit_is_refused(files: list[Path], package: Path, tmp_path: Path) -> None:
    small, other = files[2], tmp_path / "mine" / "MDVRP.npz"
    spec = instances_spec([str(small)])
    message = r"training\.instances hold none of 8 customers of CVRP, .*CVRP-5\.npz"
    with pytest.raises(DataError, match=message):
        require_instances(config_of(spec))
    with pytest.raises(DataError, match=message):
        source_of(config_of(spec), CPU)
    write_set(other, "MDVRP", 8, 2, 1)
    several = source_of(config_of(instances_spec([str(other)]), stages=[{"variants": ["MDVRP", "CVRP"]}]), CPU)
    assert several.variants == ("MDVRP",)
    spec = instances_spec([str(files[0])])
    write_arrays(files[0], read_arrays(files[0]), {"other": "comment"})
    with pytest.raises(DataError, match=r"CVRP-8\.npz holds other instances than when the training began"):
        source_of(config_of(spec), CPU)
    named = instances_spec("towns")
    package.write_text(MODULE + "\n# more")
    with pytest.raises(DataError, match="generator towns changed since the training began; start it again"):
        source_of(config_of(named), CPU)
    config = config_of(instances_spec("town_maps:short"))
    with pytest.raises(DataError, match=r"generator town_maps:short must give 4 instances of 8 customers and 1"):
        source_of(config, CPU).draw(config, 4, torch.Generator(), ("CVRP",))
    with pytest.raises(ConfigError, match="generator town_maps:number must be a function, got int"):
        source_of(config_of(instances_spec("town_maps:number")), CPU)


def test_an_instance_without_a_solution_is_refused(files: list[Path]) -> None:
    """Before the first step; those of a size that no stage has are never drawn."""
    for path in (files[0], files[2]):
        arrays = read_arrays(path)
        arrays["demand_linehaul"][1, 2] = 31 / 30
        write_arrays(path, arrays)
    require_instances(config_of(instances_spec([str(path) for path in files[1:]])))
    message = r"CVRP-8\.npz: instance 1 has no solution, customer 3: demand 1\.03333 exceeds the capacity 1; drop it"
    with pytest.raises(DataError, match=message):
        require_instances(config_of(instances_spec([str(path) for path in files])))


def test_sets_of_several_depots_have_one_number_of_them(files: list[Path], tmp_path: Path) -> None:
    write_set(three := tmp_path / "three.npz", "MDVRP", 8, 2, 1)
    arrays = read_arrays(three)
    fewer = {"locs": arrays["locs"][:, 1:], "num_depots": arrays["num_depots"] - 1}
    write_arrays(two := tmp_path / "two.npz", arrays | fewer)
    stages = [{"variants": ["CVRP", "MDVRP"]}]
    for several in (two, three):
        config = config_of(instances_spec([str(files[0]), str(several)]), stages=stages)
        require_instances(config)
        assert source_of(config, CPU).variants == ("CVRP", "MDVRP")
    message = r"training\.instances of 8 customers have 2 and 3 depots; keep those of one number, beside any of one"
    with pytest.raises(DataError, match=message):
        require_instances(config_of(instances_spec([str(two), str(three)]), stages=stages))


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (["nowhere/*.npz"], r"training\.instances: nowhere/\*\.npz is no file; make it, or drop it"),
        ("clusters", r"no generator 'clusters' in polarvrp\.generators, there are towns; or write"),
        ("nowhere_at_all:draw", "module nowhere_at_all of nowhere_at_all:draw is not found; install its package"),
        ("sys:exit", "module sys of sys:exit has no file to be recorded by; name the module that defines"),
        ([__file__], r"test_own_instances\.py is no \.npz file"),
    ],
)
def test_unknown_names(instances: Any, message: str, package: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        instances_spec(instances)
