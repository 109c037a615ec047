"""``polarvrp evaluate`` and ``evaluate-set-x``: files, and bad input in one line with exit code 2."""

import json
import operator
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from polarvrp.cli.main import main
from polarvrp.config.model import ModelConfig
from polarvrp.decoding import engine
from polarvrp.evaluation import set_x
from polarvrp.files import PROVENANCE
from polarvrp.local_search.pyvrp_search import refine_tours
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.problem.archives import read_arrays, write_arrays
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.variants import FLAG_NAMES, UNSEEN_FLAGS
from polarvrp.solutions.solutions import read_solutions
from polarvrp.solvers import versions
from polarvrp.study import specs
from polarvrp.training import locks

RUN = "polarnet-shared-po-n8-s0"


SET_X_GAP = r"  (average[^:]*): (-?[\d.]+) %, (-?[\d.]+) %"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluate")
    policy = build_policy(ModelConfig(encoder="shared", width=32, heads=2, layers=1, feedforward_width=32), 0)
    save_policy(path / "moved.safetensors", policy, {"run": RUN, "fingerprint": "abc"})
    for name in ("CVRP", "MDVRPMBTW"):
        words = ["--variant", name, "--num-customers", "8", "--instances", "3", "--seed", "1"]
        assert main(["generate", *words, "--output", str(path / f"{name}.npz")]) == 0
    return path


def test_several_sets_become_files_that_check_accepts(folder: Path, tmp_path: Path) -> None:
    sets = [str(folder / f"{name}.npz") for name in ("CVRP", "MDVRPMBTW")]
    outputs = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    model = str(folder / "moved.safetensors")
    assert main(["evaluate", *sets, "--model", model, "--first", "2", "--run", RUN, "--output", *outputs]) == 0
    for instances, output in zip(sets, outputs, strict=True):
        table = read_solutions(output)
        assert table["run"].to_pylist() == [RUN, RUN]
        assert main(["check", instances, output]) == 0


def test_both_protocols_become_files_in_one_pass(folder: Path, tmp_path: Path) -> None:
    """Each as it would be alone; files of the second protocol come after all of the first."""
    sets = [str(folder / f"{name}.npz") for name in ("CVRP", "MDVRPMBTW")]
    model = ["--model", str(folder / "moved.safetensors"), "--augmentations", "2"]
    outputs = [tmp_path / f"{number}.parquet" for number in range(4)]
    both = ["--protocol", "strict", "published", "--output", *map(str, outputs)]
    assert main(["evaluate", *sets, *model, *both]) == 0
    said = [json.loads(pq.read_schema(path).metadata[PROVENANCE]) for path in outputs]
    assert [entry["protocol"] for entry in said] == ["strict", "strict", "published", "published"]
    assert all(entry["mb_sets_b"] and not entry["mask_unseen_flags"] for entry in said)
    for protocol, paths in (("strict", outputs[:2]), ("published", outputs[2:])):
        alone = [tmp_path / f"{protocol}-{number}.parquet" for number in range(2)]
        assert main(["evaluate", *sets, *model, "--protocol", protocol, "--output", *map(str, alone)]) == 0
        for path, expected in zip(paths, alone, strict=True):
            assert read_solutions(path)["actions"] == read_solutions(expected)["actions"]
    assert read_solutions(outputs[0])["cost"] == read_solutions(outputs[2])["cost"]


def test_local_search_makes_further_files_of_the_same_tours(folder: Path, tmp_path: Path) -> None:
    sets = [str(folder / f"{name}.npz") for name in ("CVRP", "MDVRPMBTW")]
    outputs = [tmp_path / f"{number}.parquet" for number in range(4)]
    command = ["evaluate", *sets, "--model", str(folder / "moved.safetensors"), "--local-search", "--output"]
    assert main([*command, *map(str, outputs)]) == 0
    said = [json.loads(pq.read_schema(path).metadata[PROVENANCE]).get("local_search") for path in outputs]
    assert said == [None, None, "pyvrp", "pyvrp"]
    for instances, network, searched in zip(sets, outputs[:2], outputs[2:], strict=True):
        assert main(["check", instances, str(searched)]) == 0
        before, after = (read_solutions(path) for path in (network, searched))
        refined = [
            refine_tours(read_instances(Path(instances)), index, [actions], [0])[0].actions
            for index, actions in enumerate(before["actions"].to_pylist())
        ]
        assert after["actions"].to_pylist() == refined
        assert all(map(operator.ge, after["seconds"].to_pylist(), before["seconds"].to_pylist()))
    assert read_solutions(outputs[0])["cost"] != read_solutions(outputs[2])["cost"]


def test_local_search_wants_a_file_more_and_the_problem_s_rules(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out.parquet")
    model = ["--model", str(folder / "moved.safetensors"), "--local-search"]
    command = ["evaluate", str(folder / "CVRP.npz"), *model, "--output", output]
    assert main(command) == 2
    assert "one file a set, and one more with local search: got 1 for 2" in capsys.readouterr().err
    assert main([*command, output, "--protocol", "published"]) == 2
    assert "--local-search keeps the rules of the problem" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_local_search_refuses_another_release_before_anything_is_decoded(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "version", lambda name: "0.11.0")
    words = [str(folder / "CVRP.npz"), "--model", str(folder / "moved.safetensors"), "--local-search"]
    assert main(["evaluate", *words, "--output", str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]) == 2
    assert "pyvrp 0.11.0 is installed, 0.14.x is needed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_flags_of_unseen_attributes_are_recorded(folder: Path, tmp_path: Path) -> None:
    words = [str(folder / "MDVRPMBTW.npz"), "--model", str(folder / "moved.safetensors"), "--augmentations", "1"]
    words += ["--mask-unseen-flags", "--mixed-backhauls-only", "--output", str(tmp_path / "masked.parquet")]
    assert main(["evaluate", *words]) == 0
    said = json.loads(pq.read_schema(tmp_path / "masked.parquet").metadata[PROVENANCE])
    assert (said["mask_unseen_flags"], said["mb_sets_b"]) == (True, False)


def test_masked_flags_count_as_weights_of_zero(tmp_path: Path) -> None:
    """Tours without the flags are those of a network whose columns of these flags are zero, and no others."""
    config = ModelConfig(width=32, heads=2, layers=1, feedforward_width=32)
    policy = build_policy(config, 0)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        save_policy(tmp_path / "whole.safetensors", policy, {"run": RUN, "fingerprint": "abc"})
        first_maps = (policy.conditioning.film.maps[0], policy.conditioning.prompt.lift)
        for layer in first_maps:
            layer.weight[:, len(FLAG_NAMES) - len(UNSEEN_FLAGS) :] = 0
        save_policy(tmp_path / "without.safetensors", policy, {"run": RUN, "fingerprint": "abc"})
    instances = str(tmp_path / "MDVRPMB.npz")
    words = ["--variant", "MDVRPMB", "--num-customers", "12", "--instances", "8", "--seed", "1", "--output", instances]
    assert main(["generate", *words]) == 0

    def actions(model: str, *options: str) -> list[list[int]]:
        output = tmp_path / "tours.parquet"
        words = ["--model", str(tmp_path / f"{model}.safetensors"), "--augmentations", "1", "--output", str(output)]
        assert main(["evaluate", instances, *words, *options]) == 0
        found: list[list[int]] = read_solutions(output)["actions"].to_pylist()
        return found

    masked = actions("whole", "--mask-unseen-flags")
    assert masked == actions("without") == actions("without", "--mask-unseen-flags")
    assert masked != actions("whole")


def test_files_are_counted_by_set_and_protocol(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder / "CVRP.npz"), "--model", str(folder / "moved.safetensors")]
    words += ["--output", str(tmp_path / "one.parquet")]
    assert main(["evaluate", *words, "--protocol", "strict", "published"]) == 2
    assert "--output needs one file a set and protocol: got 1 for 2; list them in order" in capsys.readouterr().err
    assert main(["evaluate", *words, "--protocol", "strict", "strict"]) == 2
    assert "--protocol must name each protocol once" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_set_x_prints_mean_gaps_by_size_class(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of instances that are named, in any case and order; the numbers are those of the file."""
    output = tmp_path / "set_x.parquet"
    effort = ["--model", str(folder / "moved.safetensors"), "--starts", "1", "--augmentations", "1"]
    names = ["X-n106-k14", "x-n256-k16", "X-n101-k25", "X-n101-k25"]
    assert main(["evaluate-set-x", *effort, "--instances", *names, "--output", str(output)]) == 0
    rows = {row["instance"]: row for row in pq.read_table(output).to_pylist()}
    assert list(rows) == ["X-n106-k14", "X-n256-k16", "X-n101-k25"]
    small, large = [rows["X-n106-k14"], rows["X-n101-k25"]], [rows["X-n256-k16"]]
    groups = {"average n<251 (2)": small, "average 251<=n<=500 (1)": large, "average (3)": small + large}
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{output}: mean gaps to the best known costs")
    printed = {match[1]: (match[2], match[3]) for line in lines if (match := re.fullmatch(SET_X_GAP, line))}
    for group, members in groups.items():
        means = [np.mean([row[name] for row in members]) for name in ("gap_percent", "published_gap_percent")]
        assert printed.pop(group) == tuple(f"{mean:.3f}" for mean in means)
    assert printed == {}


def test_evaluations_lease_their_card_as_trainings_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = []

    @contextmanager
    def lease() -> Iterator[torch.device]:
        leases.append("taken")
        yield torch.device("cpu")
        leases.append("returned")

    monkeypatch.setattr(locks, "leased_device", lease)
    model, output = ["--model", str(folder / "moved.safetensors")], ["--output", str(tmp_path / "out.parquet")]
    elsewhere = ["--output", str(tmp_path / "set_x.parquet")]
    assert main(["evaluate", str(folder / "CVRP.npz"), *model, *output]) == 0
    provenance = json.loads(read_solutions(tmp_path / "out.parquet").schema.metadata[PROVENANCE])
    assert provenance["card"] is None and provenance["device"]
    assert (
        main(["evaluate-set-x", "--instances", "1", "--starts", "1", "--augmentations", "1", *model, *elsewhere]) == 0
    )
    assert leases == 2 * ["taken", "returned"]


def test_an_engine_that_fails_its_self_check_is_told_in_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    from triton.language import constexpr

    from polarvrp.decoding.fused import self_check
    from polarvrp.decoding.fused.kernels import pointer

    monkeypatch.setattr(engine, "on_card", lambda policy: True)
    monkeypatch.setattr(self_check, "_faults", {})
    monkeypatch.setattr(pointer, "CLIP", constexpr(6.0))
    output = tmp_path / "out.parquet"
    command = ["evaluate", str(folder / "CVRP.npz"), "--model", str(folder / "moved.safetensors")]
    assert main([*command, "--output", str(output), "--engine", "fused"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(
        "polarvrp evaluate: engine fused fails its self-check on this card: mean likelihood error"
    )
    assert message.endswith("; use engine parallel\n")
    assert len(message.splitlines()) == 1
    assert not output.exists()


def test_a_model_is_named_by_its_folder_too(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, output = tmp_path / "model", tmp_path / "out.parquet"
    model.mkdir()
    command = ["evaluate", str(folder / "CVRP.npz"), "--model", str(model), "--output", str(output)]
    assert main(command) == 2
    assert f"{model} is a folder without weights.safetensors" in capsys.readouterr().err
    (model / "weights.safetensors").write_bytes((folder / "moved.safetensors").read_bytes())
    assert main(command) == 0
    assert read_solutions(output)["run"].to_pylist() == [RUN] * 3


def with_limit(source: Path, target: Path, limits: list[float]) -> str:
    """The same instances with limits on the length of routes."""
    arrays = read_arrays(source)
    write_arrays(target, {**arrays, "distance_limit": np.array(limits, dtype=np.float32)[:, None]})
    return str(target)


def test_impossible_instances_are_named_and_stop_only_a_set_without_any_other(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, model = tmp_path / "out.parquet", str(folder / "moved.safetensors")
    some = with_limit(folder / "CVRP.npz", tmp_path / "some.npz", [10.0, 0.01, 10.0])
    assert main(["evaluate", some, "--model", model, "--output", str(output)]) == 0
    assert "some.npz: 1 of 3 have no solution: instance 1, customer 1: " in capsys.readouterr().err
    assert [cost is None for cost in read_solutions(output)["cost"].to_pylist()] == [False, True, False]
    assert main(["check", some, str(output)]) == 0
    output.unlink()
    every = with_limit(folder / "CVRP.npz", tmp_path / "every.npz", [0.01, 0.01, 0.01])
    assert main(["evaluate", every, "--model", model, "--output", str(output)]) == 2
    assert "every.npz: no instance has a solution: instance 0, customer 1: " in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # no such model
        (["evaluate", "{CVRP}", "--model", "polarnet-ple-polar-n9-s0", "--output", "{out}"], "no model"),
        # another run's weights
        (
            ["evaluate", "{CVRP}", "--model", "{model}", "--run", "polarnet-ple-po-n8-s0", "--output", "{out}"],
            "holds run polarnet-shared-po-n8-s0, not polarnet-ple-po-n8-s0",
        ),
        # weights of another specification
        (["evaluate", "{CVRP}", "--model", "{model}", "--fingerprint", "f", "--output", "{out}"], "fingerprint"),
        # no such set
        (["evaluate", "{dir}/none.npz", "--model", "{model}", "--output", "{out}"], "none.npz"),
        # a text file instead of weights
        (["evaluate", "{CVRP}", "--model", "{text}", "--output", "{out}"], "text.safetensors"),
        # two sets, one output
        (["evaluate", "{CVRP}", "{CVRP}", "--model", "{model}", "--output", "{out}"], "one file a set"),
        # an output that is a set
        (["evaluate", "{CVRP}", "--model", "{model}", "--output", "{CVRP}"], "--output must end in .parquet"),
        # one output for two sets
        (
            ["evaluate", "{CVRP}", "{CVRP}", "--model", "{model}", "--output", "{out}", "{out}"],
            "each file once",
        ),
        (["evaluate-set-x", "--model", "nothing", "--output", "{out}"], "no model"),
        (
            ["evaluate-set-x", "--model", "nothing", "--output", "{out}", "--instances", "X-n101-k26"],
            "--instances: Set-X has no instance 'X-n101-k26'; did you mean 'X-n101-k25'?",
        ),
        (
            ["evaluate-set-x", "--model", "nothing", "--output", "{out}", "--instances", "0"],
            "--instances: Set-X has no instance '0'; write names, one number above 0, or all",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_half_written(
    folder: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.safetensors"
    text.write_text("not weights")
    out = tmp_path / "out.parquet"
    places = {"CVRP": folder / "CVRP.npz", "model": folder / "moved.safetensors", "dir": tmp_path}
    places |= {"text": text, "out": out}
    assert main([word.format(**places) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == [text]


@pytest.mark.parametrize("bumped", [False, True])
def test_a_killed_evaluation_of_set_x_goes_on_where_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bumped: bool
) -> None:
    """Unless the code that is there by now computes other numbers."""
    names, loaded = ["X-n101-k25", "X-n106-k14"], []
    whole = set_x.load_set_x

    def load(name: str) -> Any:
        loaded.append(name)
        if loaded.count(name) == 1 and name == names[1]:
            raise KeyboardInterrupt
        return whole(name)

    monkeypatch.setattr(set_x, "load_set_x", load)
    output = tmp_path / "x.parquet"
    command = ["evaluate-set-x", "--model", str(folder / "moved.safetensors"), "--starts", "1", "--augmentations", "1"]
    command += ["--instances", *names, "--output", str(output)]
    assert main(command) == 130
    assert not output.exists()
    if bumped:
        monkeypatch.setattr(specs, "EVALUATION_CODE_VERSION", 99)
    assert main(command) == 0
    assert loaded == ([*names, *names] if bumped else [*names, names[1]])
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]
    assert main(["check", "set-x", str(output)]) == 0
