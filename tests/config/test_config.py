"""The configuration: files and models agree; each mistake is one line that names the key."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from pydantic import Field

from polarvrp.catalog.experiments import EXPERIMENTS, tables
from polarvrp.catalog.scales import SCALES, ScaleName
from polarvrp.config.base import Section
from polarvrp.config.loading import load_study, read_yaml, usual_scale
from polarvrp.config.model import ModelConfig
from polarvrp.config.study import StudyConfig
from polarvrp.config.training import StageConfig, TrainConfig, TrainingRecipe
from polarvrp.errors import ConfigError, lines_of

ROOT = Path(__file__).parents[2]


def write(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def keys(content: Any) -> Any:
    """Names of all nested keys, without their values."""
    return {key: keys(value) for key, value in content.items()} if isinstance(content, dict) else None


def sections(cls: type[Section], *path: str) -> Iterator[tuple[tuple[str, ...], type[Section]]]:
    """A section and those inside it, each with the keys that lead to it."""
    yield path, cls
    for key, field in cls.model_fields.items():
        inner = get_args(field.annotation)[0] if get_origin(field.annotation) is tuple else field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from sections(inner, *path, key)


STUDY_SECTIONS = dict(sections(StudyConfig))
ALL_SECTIONS = {*STUDY_SECTIONS.values(), TrainConfig, StageConfig, ModelConfig}


@pytest.mark.parametrize("cls", sorted(ALL_SECTIONS, key=lambda cls: cls.__name__))
def test_every_key_is_described(cls: type[Section]) -> None:
    assert [name for name, field in cls.model_fields.items() if not (field.description or "").endswith(".")] == []


def test_every_scale_has_its_file_and_its_name() -> None:
    assert {path.stem for path in (ROOT / "config/scales").glob("*.yaml")} == set(SCALES) == set(get_args(ScaleName))


def test_scale_files_hold_the_same_keys() -> None:
    first, *others = (yaml.safe_load((ROOT / f"config/scales/{scale}.yaml").read_text()) for scale in SCALES)
    for other in others:
        assert keys(other) == keys(first)
        assert {tuple(size) for size in other["sizes"]} == {tuple(size) for size in first["sizes"]}


def test_config_and_scales_share_no_key_and_leave_none_to_a_default() -> None:
    study = keys(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    scale = keys(yaml.safe_load((ROOT / "config/scales/paper.yaml").read_text()))
    for path, cls in STUDY_SECTIONS.items():
        if path in (("sizes",), ("external_methods",), ("training", "stages")):
            continue
        left, right = study, scale
        for part in path:
            left, right = left.get(part) or {}, right.get(part) or {}
        inner = {keys[len(path)] for keys in STUDY_SECTIONS if len(keys) > len(path)}
        assert not (set(left) & set(right)) - inner, path
        assert set(left) | set(right) == set(cls.model_fields), path


def test_the_usual_scale_is_that_of_the_file(tmp_path: Path) -> None:
    assert usual_scale(tmp_path) == usual_scale(ROOT / "config") == "quick"
    write(tmp_path / "config.yaml", {"scale": "paper"})
    assert usual_scale(tmp_path) == "paper"
    write(tmp_path / "config.yaml", {"scale": "huge"})
    with pytest.raises(ConfigError, match="scale must be one of"):
        usual_scale(tmp_path)


@pytest.mark.parametrize("scale", SCALES)
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


SIZE = {"num_customers": 10, "batch_size": 16, "reference_seconds": 1}
MISTAKES = [
    ({"training": {"learning_rates": 0.1}}, "unknown key training.learning_rates; did you mean 'learning_rate'?"),
    ({"trainings": {}}, "unknown key trainings; did you mean 'training'?"),
    ({"sizes": [SIZE | {"batch_sise": 3}]}, "unknown key sizes[0].batch_sise; did you mean 'batch_size'?"),
    ({"sizes": [SIZE, SIZE]}, "sizes must have growing num_customers, got [10, 10]"),
    ({1: 2}, "unknown key 1; it is one of scale, seeds, variants,"),
    (
        {"training": {"learning_rate": "3e-4"}},
        "training.learning_rate must be a number, got '3e-4'; YAML reads 3e-4 and quoted numbers as text, write 0.0003",
    ),
    ({"training": {"learning_rate": True}}, "training.learning_rate must be a number, got True"),
    ({"training": {"epochs": 1.5}}, "training.epochs must be a whole number, got 1.5"),
    ({"training": {"epochs": 2.0}}, "training.epochs must be a whole number, got 2.0"),
    ({"training": {"epochs": True}}, "training.epochs must be a whole number, got True"),
    ({"training": {"epochs": 0}}, "training.epochs must be above 0, got 0"),
    ({"training": {"learning_rate": float("nan")}}, "training.learning_rate must be a finite number, got nan"),
    ({"training": {"milestones": [295, 270]}}, "training.milestones must grow, got [295, 270]; sort them"),
    ({"training": {"milestones": 270}}, "training.milestones must be a list, got 270"),
    (
        {"training": {"precision": "float16"}},
        "training.precision must be one of float32, bfloat16, auto, got 'float16'",
    ),
    ({"training": 3}, "training must be a section of keys, got 3"),
    ({"set_x": {"starts": "most"}}, "set_x.starts must be a whole number or all, got 'most'"),
    ({"set_x": {"starts": 0}}, "set_x.starts must be above 0 or all, got 0"),
    ({"variants": "CVRP"}, "variants must be a list or all, got 'CVRP'"),
    ({"variants": ["CVRP", "VRPWT"]}, "variants[1] is 'VRPWT', which does not exist; did you mean 'VRPTW'?"),
    ({"variants": ["MDVRP"]}, "variants must hold one of the training variants CVRP,"),
    ({"sizes": []}, "sizes must be a list of at least 1, got []"),
    ({"transfer_size": 11}, "transfer_size must be one of the sizes [10, 20], got 11"),
    ({"seeds": []}, "seeds must be a list of at least 1, got []"),
    (
        {"evaluation": {"mask_unseen_flags": "maybe"}},
        "evaluation.mask_unseen_flags must be true or false or both, got 'maybe'",
    ),
    ({"seeds": [0, -1]}, "seeds[1] must be at least 0, got -1"),
    ({"seeds": [3, 3]}, "seeds names something twice, got 3, 3; drop one"),
    ({"backbones": ["polarnet", "polarnet"]}, "backbones names something twice, got polarnet, polarnet; drop one"),
    (
        {"backbones": [{"name": "polarnt", "encoder": "shared", "paradigm": "po", "label": "Mine"}]},
        "backbones[0].name is 'polarnt', which does not exist; did you mean 'polarnet'?",
    ),
    (
        {"backbones": [{"name": "cada", "encoder": "ple", "paradigm": "po", "label": "Mine"}]},
        "backbones[0].encoder is 'ple', which cada lacks; it is one of shared",
    ),
    (
        {"backbones": [{"name": "cada", "encoder": "shared", "paradigm": "po"}]},
        "backbones[0].label is missing; add it",
    ),
    (
        {"backbones": [{"name": "cada", "encoder": "shared", "paradigm": "po", "label": "Mine", "labl": ""}]},
        "unknown key backbones[0].labl; did you mean 'label'?",
    ),
    (
        {"backbones": [{"name": "cada", "encoder": "shared", "paradigm": "po", "label": ""}]},
        "backbones[0].label must be text of at least 1 letter, got ''",
    ),
    ({"backbones": [3]}, "backbones[0] must be text or a section of keys, got 3"),
    (
        {"backbones": ["cada", {"name": "cada", "encoder": "shared", "paradigm": "po", "label": "CaDA"}]},
        "backbones holds two rows of label 'CaDA'; drop or rename one",
    ),
    (
        {"backbones": ["cada", {"name": "cada", "encoder": "shared", "paradigm": "rl", "label": "Mine"}]},
        "backbones holds two rows of stem 'cada-shared-rl'; drop or rename one",
    ),
    ({"backbones": ["polarnte"]}, "backbones[0] is 'polarnte', which does not exist; did you mean 'polarnet'?"),
    ({"experiments": ["zeroshot"]}, "experiments[0] is 'zeroshot', which does not exist; did you mean 'zero_shot'?"),
    ({"evaluation": {"augmentations": 9}}, "evaluation.augmentations must be at most 8, got 9"),
    # more validation instances solved than a set has
    ({"training": {"validation_instances": 3}}, "training.validation_instances is 3, but a validation set has 2"),
    ({"training": {"validation_instances": 0}}, "training.validation_instances must be above 0, got 0"),
    (
        {"external_methods": [{"name": "a-b", "label": "Theirs", "files": ["a.parquet"]}]},
        "external_methods[0].name must hold letters, digits, points and underscores only, got 'a-b'",
    ),
    (
        {"external_methods": [{"name": "theirs", "label": "Ours", "files": ["a.parquet"]}]},
        "external_methods repeats the label 'Ours'; rename one",
    ),
    (
        {"external_methods": [{"name": "theirs", "label": "Theirs", "files": []}]},
        "external_methods[0].files must be a list of at least 1, got []",
    ),
    ({"datasets": {"test_seed": -1}}, "datasets.test_seed must be at least 0, got -1"),
    ({"datasets": {"validation_seed": -7}}, "datasets.validation_seed must be at least 0, got -7"),
    ({"references": {"seed": -1}}, "references.seed must be at least 0, got -1"),
    ({"references": {"solvers": ["pyvrp", "pyvrp"]}}, "references.solvers names something twice, got pyvrp, pyvrp;"),
    ({"variants": ["CVRP", "VRPTW", "CVRP"]}, "variants names something twice, got CVRP, VRPTW, CVRP; drop one"),
    ({"experiments": ["set_x", "set_x"]}, "experiments names something twice, got set_x, set_x; drop one"),
    ({"grid_backbones": 2 * ["polarnet"]}, "grid_backbones names something twice, got polarnet, polarnet; drop one"),
    ({"sweeps": {"temperature": [0.1, 0.1]}}, "sweeps.temperature names something twice, got 0.1, 0.1; drop one"),
    ({"training": {"milestones": [3, 3]}}, "training.milestones names something twice, got 3, 3; drop one"),
    ({"training": {"instances": ["a", "a"]}}, "training.instances names something twice, got a, a; drop one"),
    (
        {"training": {"stages": [{"variants": ["CVRP", "CVRP"]}, {}]}},
        "training.stages[0].variants names something twice, got CVRP, CVRP; drop one",
    ),
    (
        {"external_methods": [{"name": "a", "label": "A", "files": ["x", "x"]}]},
        "external_methods[0].files names something twice, got x, x; drop one",
    ),
    (
        {"external_methods": 2 * [{"name": "a", "label": "A", "files": ["x"]}]},
        "external_methods repeats the name 'a'; rename one",
    ),
    ({"seeds": ["$(touch x)"]}, "seeds[0] must be a whole number, got '$(touch x)'"),
    ({"variants": ["CVRP; touch x"]}, "variants[0] is 'CVRP; touch x', which does not exist"),
    ({"solve": {"folder": ""}}, "solve.folder must be text of at least 1 letter, got ''"),
    ({"training": {"instances": []}}, "training.instances must be"),
    ({"training": {"instances": 3}}, "training.instances must be text or a list, got 3"),
    ({"scale": "tiny"}, "scale must be one of quick, laptop, paper, got 'tiny'"),
]


@pytest.mark.parametrize(("own", "message"), MISTAKES)
def test_mistake_is_named_in_one_line(tmp_path: Path, own: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(write(tmp_path / "mine.yaml", own), ROOT / "config")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_rule_without_words_of_ours_is_told_in_pydantics() -> None:
    class Sample(Section):
        code: Annotated[str, Field(pattern="^[a-z]+$")]

    with pytest.raises(ConfigError) as caught:
        Sample.from_mapping({"code": "A1"}, "sample")
    assert str(caught.value) == "sample.code: String should match pattern '^[a-z]+$', got 'A1'"


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    own = {
        "seeds": [0, -1],
        "backbone": [],
        "sizes": [{"num_customers": 1, "batch_size": 1.5}, 20],
        "training": {"epochs": 0},
    }
    with pytest.raises(ConfigError) as caught:
        load_study(write(tmp_path / "mine.yaml", own), ROOT / "config")
    assert str(caught.value).splitlines() == [
        "seeds[1] must be at least 0, got -1",
        "sizes[0].num_customers must be at least 2, got 1",
        "sizes[0].batch_size must be a whole number, got 1.5",
        "sizes[0].reference_seconds is missing; add it",
        "sizes[1] must be a section of keys, got 20",
        "training.epochs must be above 0, got 0",
        "unknown key backbone; did you mean 'backbones'?",
    ]


def test_whole_numbers_serve_as_numbers_and_lists_as_tuples() -> None:
    recipe = TrainingRecipe.from_mapping({"weight_decay": 0, "milestones": [1, 2]})
    assert (recipe.weight_decay, recipe.milestones) == (0.0, (1, 2))
    assert isinstance(recipe.weight_decay, float)
    assert recipe == TrainingRecipe.from_mapping({"weight_decay": 0.0, "milestones": (1, 2)})


def test_replaced_values_are_checked() -> None:
    recipe = TrainingRecipe(epochs=7)
    assert recipe.replace(decay=0.5) == TrainingRecipe(epochs=7, decay=0.5)
    for changes, message in (({"decay": 0}, "decay must be above 0, got 0"), ({"deca": 1}, "unknown key deca")):
        with pytest.raises(ConfigError, match=message):
            recipe.replace(**changes)


def test_names_are_looked_up_when_they_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package adds an experiment to the catalog after this module was imported."""
    mine = write(tmp_path / "mine.yaml", {"experiments": ["newest"]})
    with pytest.raises(ConfigError, match=r"experiments\[0\] is 'newest', which does not exist"):
        load_study(mine, ROOT / "config")
    monkeypatch.setitem(EXPERIMENTS, "newest", replace(EXPERIMENTS["set_x"], name="newest"))
    assert load_study(mine, ROOT / "config").experiments == ("newest",)


@pytest.mark.parametrize("text", ["", "- a list", "a: [1, 2", "a: \x00"])
def test_file_without_keys_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml") as caught:
        load_study(path, ROOT / "config")
    assert "\n" not in str(caught.value)


def test_a_key_that_stands_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    """In one section; the same key of another section, or beside a merged one, is another."""
    path = tmp_path / "mine.yaml"
    for text, line in (
        ("seeds: [0]\nscale: quick\nseeds: [1]\n", r"line 3: seeds stands in line 1 already; keep one"),
        ("training:\n  epochs: 1\n  epochs: 2\n", r"line 3: epochs stands in line 2 already; keep one"),
        ("sizes:\n- {num_customers: 6, num_customers: 7}\n", r"line 2: num_customers stands in line 2 already"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"mine\.yaml, {line}"):
            load_study(path, ROOT / "config")
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml does not exist"):
        load_study(tmp_path / "absent.yaml", ROOT / "config")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"paradigm": "pola"}, "training.paradigm is 'pola', which does not exist; did you mean 'polar'"),
        ({"num_customers": 1}, "training.num_customers must be at least 2, got 1"),
        ({"batch_size": 0}, "training.batch_size must be above 0, got 0"),
        ({"stages": ()}, "training.stages must be a list of at least 1"),
        ({"stages": [{"adapters": "single"}]}, "training.stages must begin with a stage without adapters"),
        ({"stages": [{"variants": []}]}, r"training.stages\[0\].variants must be a list of at least 1"),
        ({"num_customers": 10, "refined_tours": 11}, "must not exceed the 10 tours of an instance, got 11"),
    ],
)
def test_training_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_mapping({"paradigm": "polar", "num_customers": 50, **values}, "training")


def test_the_batched_local_search_is_for_one_depot() -> None:
    both = TrainConfig(paradigm="polar", num_customers=50, stages=(StageConfig(variants=("CVRP", "MDVRP")),))
    with pytest.raises(ConfigError, match="refiner gpu serves one depot, but MDVRP has several; use pyvrp"):
        both.replace(refiner="gpu")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 100}, "model.width must be a multiple of heads"),
        ({"width": 48}, "multiple of 4"),
        ({"head": "gate"}, "model.head must be one of"),
        ({"layers": 0}, "model.layers must be above 0, got 0"),
    ],
)
def test_network_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_mapping(values, "model")


def test_files_that_mean_too_much_or_nothing_are_one_short_line(tmp_path: Path) -> None:
    """Nested references that would be printed as gigabytes, a date that does not exist, brackets without end."""
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join(9 * [f'*a{n}'])}]\n" for n in range(6))
    texts = (bomb + "scale: *a6\n", "- " + "x" * 10**5, "scale: 2026-99-99\n", "[" * 10**5)
    for text in texts:
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_study(tmp_path / "mine.yaml", ROOT / "config")
        assert max(map(len, lines_of("x", caught.value).splitlines())) < 1200
