"""The configuration: files, schema and dataclasses agree; mistakes end in one line that names the key."""

import dataclasses
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import yaml

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.experiments import tables
from polarvrp.catalog.methods import method_of
from polarvrp.config import study as study_config
from polarvrp.config.loading import load_study
from polarvrp.config.model import ModelConfig
from polarvrp.config.sections import Section
from polarvrp.config.study import StudyConfig
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.errors import ConfigError

ROOT = Path(__file__).parents[2]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())


def write(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def keys(content: Any) -> Any:
    """Names of all nested keys, without their values."""
    return {key: keys(value) for key, value in content.items()} if isinstance(content, dict) else None


def sections_of_schema(schema: dict[str, Any], name: str = "study"):
    """Every object of the schema with its dotted name."""
    yield name, schema
    for key, part in schema.get("properties", {}).items():
        inner = part.get("items", {}) if part.get("type") == "array" else part
        if inner.get("type") == "object":
            yield from sections_of_schema(inner, f"{name}.{key}")


def section_type(annotation: Any) -> type[Section] | None:
    """The section behind an annotation, itself or the items of a tuple of it."""
    inner = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def schema_default(field: dataclasses.Field[Any], annotation: Any) -> Any:
    """What the schema must say where the dataclass has this default."""
    if section_type(annotation) and get_origin(annotation) is not tuple:
        return {}
    return list(field.default) if isinstance(field.default, tuple) else field.default


def pairs(cls: type[Section], schema: dict[str, Any], name: str = "study"):
    """Each dataclass of the study with its part of the schema."""
    yield name, cls, schema
    for key, annotation in get_type_hints(cls).items():
        if inner := section_type(annotation):
            part = schema["properties"][key]
            yield from pairs(inner, part.get("items", part), f"{name}.{key}")


PAIRS = list(pairs(StudyConfig, SCHEMA))


@pytest.mark.parametrize(("cls", "schema"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_schema_equals_dataclass(cls: type[Section], schema: dict[str, Any]) -> None:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    assert set(schema["properties"]) == set(fields)
    assert schema["additionalProperties"] is False
    required = {name for name, field in fields.items() if field.default is field.default_factory is dataclasses.MISSING}
    optional = set(fields) - required
    assert set(schema.get("required", [])) == required
    for name, annotation in get_type_hints(cls).items():
        part = schema["properties"][name]
        assert part["description"]
        assert ("default" in part) == (name in optional)
        if name in optional:
            assert part["default"] == schema_default(fields[name], annotation), name
        if get_origin(annotation) is Literal:
            assert part["enum"] == list(get_args(annotation))


def test_every_object_of_the_schema_is_closed() -> None:
    assert len(list(sections_of_schema(SCHEMA))) == len(PAIRS)


def test_schema_knows_the_same_names() -> None:
    properties = SCHEMA["properties"]
    assert properties["experiments"]["items"]["enum"] == list(tables())
    assert properties["backbones"]["items"]["enum"] == [name for name in BACKBONES if method_of(name)]
    assert properties["grid_backbones"]["items"]["enum"] == list(grid_backbones())


def test_scale_files_hold_the_same_keys() -> None:
    quick, paper = (yaml.safe_load((ROOT / f"config/scales/{scale}.yaml").read_text()) for scale in ("quick", "paper"))
    assert keys(quick) == keys(paper)
    assert [keys(size) for size in quick["sizes"]] == [keys(size) for size in paper["sizes"]]


def test_config_and_scales_share_no_key_and_leave_none_to_a_default() -> None:
    study = keys(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    scale = keys(yaml.safe_load((ROOT / "config/scales/paper.yaml").read_text()))
    for name, cls, _ in PAIRS:
        if name.endswith("sizes"):
            continue
        path = name.split(".")[1:]
        left, right = study, scale
        for part in path:
            left, right = left.get(part) or {}, right.get(part) or {}
        inner = {
            key for key, hint in get_type_hints(cls).items() if isinstance(hint, type) and issubclass(hint, Section)
        }
        assert not (set(left) & set(right)) - inner, name
        assert set(left) | set(right) == {field.name for field in dataclasses.fields(cls)}, name


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_shipped_configuration_is_valid(tmp_path: Path, scale: str) -> None:
    study = load_study(write(tmp_path / "mine.yaml", {"scale": scale}), ROOT / "config")
    assert study.scale == scale


def test_paper_scale_holds_the_papers_settings(tmp_path: Path) -> None:
    study = load_study(write(tmp_path / "mine.yaml", {"scale": "paper"}), ROOT / "config")
    assert [(size.num_customers, size.batch_size, size.reference_seconds) for size in study.sizes] == [
        (50, 256, 10.0),
        (100, 128, 20.0),
    ]
    assert (study.training.epochs, study.training.instances_per_epoch) == (300, 100_000)
    assert (study.training.learning_rate, study.training.weight_decay) == (3e-4, 1e-6)
    assert (study.training.milestones, study.training.decay) == ((270, 295), 0.1)
    assert (study.training.temperature, study.training.refinement_start_epoch) == (0.05, 250)
    assert study.experiments == tables()


def test_own_file_wins_over_study_and_scale(tmp_path: Path) -> None:
    own = {"scale": "paper", "training": {"temperature": 0.03, "epochs": 7}}
    study = load_study(write(tmp_path / "mine.yaml", own), ROOT / "config")
    assert (study.training.temperature, study.training.epochs) == (0.03, 7)
    assert study.training.instances_per_epoch == 100_000


MISTAKES = [
    ({"training": {"learning_rates": 0.1}}, "unknown key training.learning_rates; did you mean 'learning_rate'"),
    ({"trainings": {}}, "unknown key trainings; did you mean 'training'"),
    ({"training": {"learning_rate": "3e-4"}}, "training.learning_rate must be a number, got '3e-4'; YAML reads"),
    ({"training": {"epochs": 1.5}}, "training.epochs must be a whole number, got 1.5"),
    ({"training": {"epochs": True}}, "training.epochs must be a whole number, got True"),
    ({"training": {"epochs": 0}}, "training.epochs must be at least 1, got 0"),
    ({"training": {"learning_rate": float("nan")}}, "training.learning_rate must be a finite number above 0, got nan"),
    ({"training": {"milestones": [295, 270]}}, r"training.milestones must grow, got \[295, 270\]"),
    ({"training": {"milestones": 270}}, "training.milestones must be a list, got 270"),
    ({"training": {"precision": "float16"}}, "training.precision must be one of float32, bfloat16, auto"),
    ({"training": 3}, "training must be a section of keys, got 3"),
    ({"set_x": {"starts": "most"}}, "set_x.starts must be a whole number, got 'most'"),
    ({"sizes": []}, "sizes must be one or more"),
    ({"sizes": [{"num_customers": 10, "batch_size": 1}]}, r"sizes\[0\].reference_seconds is missing"),
    ({"transfer_size": 11}, r"transfer_size must be one of the sizes \[10, 20\], got 11"),
    ({"seeds": []}, "seeds must hold at least one seed"),
    ({"backbones": ["polarnet", "polarnet"]}, "backbones names something twice"),
    ({"backbones": ["polarnte"]}, "backbones holds 'polarnte'; did you mean 'polarnet'"),
    ({"experiments": ["zeroshot"]}, "experiments holds 'zeroshot'; did you mean 'zero_shot'"),
    ({"evaluation": {"augmentations": 9}}, "evaluation.augmentations must lie in 1 to 8, got 9"),
    # more validation instances solved than a set has
    ({"training": {"validation_instances": 3}}, "training.validation_instances is 3, but a validation set has 2"),
    ({"scale": "tiny"}, "scale must be one of quick, paper, got 'tiny'"),
]


@pytest.mark.parametrize(("own", "message"), MISTAKES)
def test_mistake_is_named_in_one_line(tmp_path: Path, own: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_study(write(tmp_path / "mine.yaml", own), ROOT / "config")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a list", "a: [1, 2", "a: \x00"])
def test_file_without_keys_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml") as caught:
        load_study(path, ROOT / "config")
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml does not exist"):
        load_study(tmp_path / "absent.yaml", ROOT / "config")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"paradigm": "pola"}, "unknown paradigm 'pola'; did you mean 'polar'"),
        ({"num_customers": 1}, "number of customers must be at least 2"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"stages": ()}, "training.stages must begin with a stage without adapters"),
        ({"num_customers": 10, "refined_tours": 11}, "must not exceed the 10 tours of an instance, got 11"),
    ],
)
def test_training_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**{"paradigm": "polar", "num_customers": 50, **values})


def test_the_batched_local_search_is_for_one_depot() -> None:
    stage = StageConfig(variants=("CVRP", "MDVRP"))
    with pytest.raises(ConfigError, match=r"training\.refiner gpu serves one depot, but MDVRP has several; use pyvrp"):
        TrainConfig(paradigm="polar", num_customers=50, refiner="gpu", stages=(stage,))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 100}, "width must be a multiple of heads"),
        ({"width": 48}, "multiple of 4"),
        ({"head": "gate"}, "head must be one of"),
        ({"layers": 0}, "layers must be at least 1"),
    ],
)
def test_network_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_mapping(values, "model")


def test_small_jobs_ask_for_a_gpu_only_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = load_study(None, ROOT / "config")
    paper = load_study(write(tmp_path / "mine.yaml", {"scale": "paper"}), ROOT / "config")
    monkeypatch.setattr(study_config, "GPU_DRIVER", tmp_path / "absent")
    assert (quick.gpus_per_job, paper.gpus_per_job) == (0, 1)
    monkeypatch.setattr(study_config, "GPU_DRIVER", tmp_path)
    assert (quick.gpus_per_job, paper.gpus_per_job) == (1, 1)
    assert (quick.train_threads, paper.train_threads) == (1, 16)


def test_annotations_are_of_kinds_that_sections_convert() -> None:
    plain = {int, float, str, bool}
    for _, cls, _ in PAIRS:
        for annotation in get_type_hints(cls).values():
            kind = get_origin(annotation)
            assert annotation in plain or kind in (tuple, Literal, Union, types.UnionType) or section_type(annotation)
