"""The script for the first minutes on a card: its lines, limits, budget, and caches in pieces."""

import argparse
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.benchmark_scripts import loaded_script


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The script as a module, with caches of its own."""
    with loaded_script("device") as module:
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
        yield module


@pytest.fixture
def stages(device: ModuleType) -> Iterator[ModuleType]:
    """What the stages do, as a module."""
    pytest.importorskip("triton")
    with loaded_script("timing"), loaded_script("minutes"), loaded_script("device_stages") as module:
        yield module


def options_of(tmp_path: Path, stages: list[int], budget: float = float("inf")) -> argparse.Namespace:
    return argparse.Namespace(output=tmp_path, stages=stages, budget=budget, weights=None, workers=1)


def test_a_stage_runs_in_the_interpreter_and_says_what_needs_a_card(device: ModuleType, tmp_path: Path) -> None:
    line = device.run_apart(0, 120.0, options_of(tmp_path, [0]))
    assert line.startswith("OK ")
    assert " copy_tb_s=" in line and " product_tflop_s=" in line and line.endswith(" needs_card=pinning")
    assert "NUMBERS" in (tmp_path / "stages.log").read_text()


@pytest.mark.long
def test_every_stage_runs_without_a_card_and_says_what_needs_one(
    device: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    everything = list(range(len(device.STAGES)))
    assert device.run_all(options_of(tmp_path, everything), device.SLOWER_WITHOUT_CARD) == set()
    lines = [line.split(" ") for line in capsys.readouterr().out.splitlines()]
    assert [(line[2], line[3]) for line in lines] == [(stage.name, "OK") for stage in device.STAGES]
    without = {line[2] for line in lines if not any(word.startswith("needs_card=") for word in line)}
    assert without == {"training"}  # which counts its own seconds


STAGE = """
import sys, time
number = int(sys.argv[sys.argv.index("--run-stage") + 1])
print("noise", flush=True)
print("NUMBERS value=1.5", flush=True)
if number == 1:
    raise RuntimeError("the kernel is wrong")
if number == 2:
    time.sleep(60)
print("NUMBERS other=2")
"""


def test_later_stages_go_on_unless_they_need_what_failed(
    device: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "stage.py"
    script.write_text(STAGE)
    stages = tuple(
        device.Stage(name, "", limit, needs)
        for name, limit, needs in [("a", 30, ()), ("b", 30, (0,)), ("c", 2, ()), ("d", 30, (1,)), ("e", 30, (0,))]
    )
    monkeypatch.setattr(device, "__file__", str(script))
    monkeypatch.setattr(device, "STAGES", stages)
    monkeypatch.setattr(device, "TRAINING", 99)
    assert device.run_all(options_of(tmp_path, [0, 1, 2, 3, 4]), slower=1) == {1, 2, 3}
    lines = [line.split(" ") for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines] == [
        ["STAGE", str(number), name, verdict]
        for number, (name, verdict) in enumerate(zip("abcde", ["OK", "FAIL", "FAIL", "FAIL", "OK"], strict=True))
    ]
    assert all(float(line[4]) >= 0 for line in lines)
    assert [" ".join(line[5:]) for line in lines] == [
        "value=1.5 other=2",
        "value=1.5 | RuntimeError: the kernel is wrong",
        "value=1.5 | limit of 2 s",
        "needs=1",
        "value=1.5 other=2",
    ]
    log = (tmp_path / "stages.log").read_text().splitlines()  # one for all: few files come back from some machines
    assert [line for line in log if line.startswith("STAGE")] == ["STAGE 0 a", "STAGE 1 b", "STAGE 2 c", "STAGE 4 e"]
    assert log.count("noise") == 4


def test_a_budget_drops_the_last_stages_and_training_takes_what_is_left(
    device: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {}

    def run_apart(number: int, limit_s: float, options: argparse.Namespace) -> str:
        limits[number] = limit_s
        return "OK 1.0 "

    monkeypatch.setattr(device, "run_apart", run_apart)
    assert device.run_all(options_of(tmp_path, [8, 9, 10, 11], budget=80), slower=1) == set()
    words = [line.split(" ")[1:4] for line in capsys.readouterr().out.splitlines()]
    assert words == [
        ["8", "polar-50", "DROPPED"],
        ["9", "step-100", "DROPPED"],
        ["10", "inference", "DROPPED"],
        ["11", "training", "OK"],
    ]
    assert limits == {11: pytest.approx(65, abs=1)}
    assert device.run_all(options_of(tmp_path, [0, 9], budget=80), slower=1) == set()  # more than half of its limit
    assert limits == {11: pytest.approx(65, abs=1), 0: 60, 9: pytest.approx(65, abs=1)}


def test_training_plans_with_the_last_times_that_were_told(stages: ModuleType, tmp_path: Path) -> None:
    assumed = stages.ASSUMED_MS
    assert stages.earlier_number(tmp_path, "step_ms") == assumed["step_ms"]
    lines = ["STAGE 7 step-50", "NUMBERS step_ms=30 level=fused", "NUMBERS void kernel_ms=1 step_ms=20.5", "step_ms=1"]
    (tmp_path / "stages.log").write_text("\n".join(lines))
    assert stages.earlier_number(tmp_path, "step_ms") == 20.5
    assert stages.earlier_number(tmp_path, "pyvrp_ms") == assumed["pyvrp_ms"]


def test_a_later_call_knows_what_an_earlier_one_told_though_its_folder_was_emptied(
    device: ModuleType, stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, output = tmp_path / "stage.py", tmp_path / "output"
    script.write_text('print("NUMBERS step_ms=17.5")')
    output.mkdir()
    monkeypatch.setattr(device, "__file__", str(script))
    assert device.run_apart(7, 30.0, options_of(output, [7])).endswith(" step_ms=17.5")
    shutil.rmtree(output)
    found: list[float] = []

    def run_all(options: argparse.Namespace, slower: int) -> set[int]:
        found.append(stages.earlier_number(options.output, "step_ms"))
        return set()

    monkeypatch.setattr(device, "run_all", run_all)
    monkeypatch.setattr(device, "card_is_there", lambda: False)
    monkeypatch.setattr(sys, "argv", ["device.py", "--output", str(output), "--stages", "11"])
    assert device.main() == 0
    assert (output / "stages.log").read_text().splitlines() == ["STAGE 7 step-50", "NUMBERS step_ms=17.5"]
    (output / "stages.log").write_text("NUMBERS step_ms=20")  # of another machine
    assert device.main() == 0
    assert found == [17.5, 20.0]


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        (
            "void at::native::unrolled_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
            "unrolled_kernel<4,_FillFunctor<float>,_array<char*,_1ul>_>(int)",
        ),
        (
            "void at::native::unrolled_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
            "unrolled_kernel<4,_CUDAFunctor_add<float>,_array<char*,_3ul>_>(int)",
        ),
        ("void at::native::(anonymous namespace)::apply_kernel<at::List<4> >(int)", "apply_kernel<List<4>_>(int)"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"),
        ("k" * 200, "k" * 100),
    ],
)
def test_kernels_are_named_by_what_tells_them_apart(signature: str, name: str, stages: ModuleType) -> None:
    assert stages.kernel_name(signature) == name


@pytest.mark.parametrize("seconds", [150.0, 240.0, 400.0])
def test_the_training_fits_into_its_stage_and_tells_how_far_its_schedule_came(
    seconds: float,
    stages: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    planned: list[argparse.Namespace] = []

    def main(arguments: list[str], told: Any) -> None:
        planned.append(stages.minutes.parse(arguments))
        told({"training_seconds": 50.0, "epoch": planned[0].epochs / 2, "mean_gap_percent": 7.0, "gap_CVRP": 8.0})

    monkeypatch.setattr(stages.minutes, "main", main)
    (tmp_path / "stages.log").write_text("NUMBERS step_ms=20\nNUMBERS pyvrp_ms=36")
    stages.training(stages.Setting(torch.device("cuda"), tmp_path, None, 16, seconds))
    (options,) = planned
    steps = options.epochs * options.instances_per_epoch / options.batch_size
    assert 0.3 * seconds < 0.024 * steps <= 0.35 * seconds
    assert 2 * options.slice + 30 < seconds and 2 * options.slice < options.limit == options.seconds < seconds
    assert capsys.readouterr().out.splitlines() == [
        f"NUMBERS epochs={options.epochs}",
        f"NUMBERS training_seconds=50 epoch={options.epochs / 2:.4g} mean_gap_percent=7 share_of_schedule=0.5",
    ]


@pytest.mark.parametrize(("limit", "slices"), [("10", 1), ("139", 1), ("140", 2), ("220", 3)])
def test_after_the_first_no_slice_begins_that_would_end_after_the_limit(
    limit: str, slices: int, stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes, clock, rows = stages.minutes, [0.0], list[dict[str, Any]]()

    def train(job: Any) -> bool:
        clock[0] += job.max_seconds + 20  # the rest solves
        return False

    def standing(*arguments: Any) -> dict[str, Any]:
        return {"training_seconds": 1.0, "epoch": 1.0, "mean_gap_percent": 2.0}

    monkeypatch.setenv("WANDB_MODE", "disabled")  # the script would set it for good
    monkeypatch.setattr(minutes, "train", train)
    monkeypatch.setattr(minutes, "standing", standing)
    monkeypatch.setattr(minutes, "make_sets", lambda *arguments: [])
    monkeypatch.setattr(minutes, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    output = tmp_path / "minutes.parquet"
    minutes.main(["--slice", "60", "--limit", limit, "--output", str(output)], rows.append)
    assert len(rows) == slices
    assert output.exists()


def test_only_stages_that_ask_for_it_compile_the_head(stages: ModuleType) -> None:
    compiled = stages.fused_scoring._compiled
    with stages.plain_head():
        assert stages.fused_scoring._compiled(len) is len
    assert stages.fused_scoring._compiled is compiled


def test_gradients_of_the_encoder_stage_reach_its_layers(
    stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its forms would be compared by the weight of the last norm alone."""
    policies: list[Any] = []
    build = stages.build_policy

    def noted(*arguments: Any) -> Any:
        policies.append(build(*arguments))
        return policies[-1]

    monkeypatch.setattr(stages, "build_policy", noted)
    stages.encoder(stages.Setting(torch.device("cpu"), tmp_path, None, 1, 60.0))
    (policy,) = policies
    fusion, norm = policy.stack.fusion
    attention = policy.stack.layers[0].shared_expert.attention
    for weight in (fusion.weight, attention.query_key_value.weight):
        assert weight.grad.norm() > 0.05 * norm.weight.grad.norm()


@pytest.mark.parametrize(
    ("refiner", "wanted"), [(None, [(1, 256), (3, 160), (1, 256)]), (object(), [(1, 256)])], ids=["plain", "refined"]
)
def test_the_odd_batch_runs_between_timed_steps_only(
    refiner: object, wanted: list[tuple[int, int]], stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[tuple[int, int]] = []

    def run(stage: int, epoch: int, step: int, batch_size: int) -> None:
        batches.append((epoch, batch_size))

    def timed_steps(*arguments: Any) -> SimpleNamespace:
        return SimpleNamespace(median_s=0.02, phases_s={}, memory_gb=1.0)

    monkeypatch.setattr(stages, "timed_steps", timed_steps)
    setting = SimpleNamespace(
        on_card=False,
        policy=torch.nn.Identity,
        batch=lambda size: 256,
        step=lambda *arguments: SimpleNamespace(run=run, level="fused"),
    )
    stages.step_times(setting, 50, "step_", refiner)
    assert batches == wanted


def test_stages_are_named_by_ranges(device: ModuleType) -> None:
    assert device.stage_numbers("0-3,7") == [0, 1, 2, 3, 7]
    with pytest.raises(argparse.ArgumentTypeError, match="stages go from 0 to 11, got 12"):
        device.stage_numbers("12")


def test_caches_travel_in_small_pieces(device: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "PIECE_BYTES", 1000)
    kernel = device.CACHE / "triton" / "kernel.cubin"
    kernel.parent.mkdir(parents=True)
    content = os.urandom(3500)
    kernel.write_bytes(content)
    output = tmp_path / "output"
    output.mkdir()
    device.pack_caches(output)
    sizes = [piece.stat().st_size for piece in device.pieces_in(output)]
    assert len(sizes) >= 4 and max(sizes) <= 1000
    kernel.unlink()
    device.unpack_caches(output)
    assert kernel.read_bytes() == content


def test_half_an_archive_leaves_no_half_of_a_kernel(
    device: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine may not hand back all pieces."""
    monkeypatch.setattr(device, "PIECE_BYTES", 1000)
    device.CACHE.mkdir()
    for name in ("first.cubin", "second.cubin"):
        (device.CACHE / name).write_bytes(os.urandom(3500))
    device.pack_caches(tmp_path)
    device.pieces_in(tmp_path)[-2].unlink()
    device.pieces_in(tmp_path)[-1].unlink()
    for kernel in device.CACHE.iterdir():
        kernel.unlink()
    device.unpack_caches(tmp_path)
    assert list(device.CACHE.iterdir()) == []
    assert "the archived caches are of no use" in capsys.readouterr().err


def test_a_file_that_goes_while_caches_are_archived_is_no_failure(
    device: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(self: tarfile.TarFile, name: Path, arcname: str) -> None:
        raise FileNotFoundError(f"{name} is gone")

    device.CACHE.mkdir()
    monkeypatch.setattr(tarfile.TarFile, "add", gone)
    device.pack_caches(tmp_path)
    assert device.pieces_in(tmp_path) == []
    assert "the caches are not archived" in capsys.readouterr().err


def test_a_broken_archive_is_told_and_left(
    device: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "caches-000.tgz").write_bytes(b"no archive")
    device.unpack_caches(tmp_path)
    assert "the archived caches are of no use" in capsys.readouterr().err
