"""The entry point: an interrupt ends a command quietly."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polarvrp.cli import describe
from polarvrp.cli.main import main


def test_an_interrupt_ends_a_command_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(describe, "execute", interrupted)
    assert main(["describe", "polarnet", "ple"]) == 130
    assert capsys.readouterr().err == "polarvrp describe: interrupted\n"


def test_an_interrupt_while_the_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_name: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main(["describe", "polarnet", "ple"]) == 130
    assert capsys.readouterr().err == "polarvrp describe: interrupted\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solve", ""], "an argument"),
        (["solve", "x.vrp", "--model", ""], "--model"),
        (["solve", "x.vrp", "--output="], "--output"),
        (["generate", "--variant", "CVRP", "--output", ""], "--output"),
        (["models", "--results", "results", ""], "an argument"),
        (["check", "x.vrp", ""], "an argument"),
    ],
)
def test_empty_words_are_no_paths(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == 2
    expected = f"polarvrp {words[0]}: {said} is empty; give it a value or leave it out\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generatee"], "polarvrp: there is no command generatee; did you mean 'generate'?"),
        (
            ["generate", "--variant", "CVRP", "--num-customers", "zz"],
            "polarvrp generate: argument --num-customers: invalid int value: 'zz'; "
            "polarvrp generate --help says what there is",
        ),
        (
            ["describe", "polarnet", "ple", "--size", "20"],
            "polarvrp describe: unknown: --size 20; polarvrp describe --help says what there is",
        ),
    ],
)
def test_what_no_command_or_option_takes_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"{said}\n")


def test_summaries_keep_their_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    for command, said in (("evaluate-set-x", "CVRPLIB Set-X"), ("reference", "library files with PyVRP or OR-Tools")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.3, 0.8])
def test_ctrl_c_while_solving_leaves_no_traceback(tmp_path: Path, delay_s: float) -> None:
    """At whatever moment it comes: while processes start or while they solve."""
    words = ["--variant", "CVRP", "--num-customers", "10", "--instances", "2", "--seed", "1"]
    assert main(["generate", *words, "--output", str(tmp_path / "set.npz")]) == 0
    output = tmp_path / "out.parquet"
    command = [sys.executable, "-m", "polarvrp", "reference", str(tmp_path / "set.npz"), "--solver", "pyvrp"]
    process = subprocess.Popen(
        [*command, "--seconds", "600", "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell in the background starts its jobs deaf to interrupts, and so would the command be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 60
    while not output.with_name("out.parquet.partial").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == "polarvrp reference: interrupted\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(13, "Permission denied", "closed/x"), "closed/x: Permission denied; check the path"),
        (MemoryError("Unable to allocate 160. TiB"), "not enough memory (Unable to allocate 160. TiB); ask for less"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory (DefaultCPUAllocator"),
    ],
)
def test_what_the_machine_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    def refused(_options: object) -> int:
        raise error

    monkeypatch.setattr(describe, "execute", refused)
    assert main(["describe", "polarnet", "ple"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"polarvrp describe: {line}") and said.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_what_is_printed_is_one_line(tmp_path: Path, unbuffered: str) -> None:
    """Whether a line is written when it is printed or when the command ends."""
    words = f"generate --variant CVRP --num-customers 5 --instances 1 --seed 1 --output {tmp_path / 'set.npz'}".split()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "polarvrp", *words],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    line = "polarvrp generate: what it prints cannot be written (No space left on device); free space\n"
    assert (done.returncode, done.stderr) == (2, line)


def test_mistakes_of_programs_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_options: object) -> int:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(describe, "execute", wrong)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["describe", "polarnet", "ple"])


@pytest.mark.parametrize(
    "words",
    [
        "generate --variant CVRP --num-customers 99999999999 --instances 1 --seed 1 --output x.npz",
        "generate --variant CVRP --num-customers 10 --instances 99999999999 --seed 1 --output x.npz",
        "describe polarnet ple --num-customers 99999999999999999999",
        "describe polarnet ple --task-experts 99999999",
        f"check {'x' * 300}.npz x.parquet",
        f"evaluate x.npz --model {'x' * 300} --output x.parquet",
        f"report --results {'x' * 300}",
    ],
)
def test_absurd_sizes_and_names_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
