"""No command puts its output in the place of an input or of other work; what it wrote itself it may write again."""

import contextlib
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.full_disk import full_disk
from helpers.library_texts import PLAIN, vrp
from helpers.results_folder import ResultsFolder
from polarvrp.cli.main import main
from polarvrp.config.model import ModelConfig
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import write_text
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.outputs import marked, require_output, stated_subject

RUN, OTHER = "polarnet-shared-po-n6-s0", "polarnet-shared-po-n6-s1"
SOLVE = ["--seconds", "20", "--iterations", "2"]
ALONE = "--model none"
SOLVE_A = f"reference a.npz --solver pyvrp {' '.join(SOLVE)}"
LIBRARY = f"reference x.vrp --solver pyvrp {' '.join(SOLVE)}"
SET_X = "evaluate-set-x --model m.safetensors --augmentations 1 --starts 1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets, models and a result of every command."""
    folder = tmp_path_factory.mktemp("made")
    for name, variant, seed in (("a", "CVRP", 1), ("b", "CVRP", 2), ("c", "VRPTW", 1)):
        words = ["--variant", variant, "--num-customers", "6", "--instances", "2", "--seed", str(seed)]
        assert main(["generate", *words, "--output", str(folder / f"{name}.npz")]) == 0
    tiny = ModelConfig(encoder="shared", width=32, heads=2, layers=1, feedforward_width=32, num_customers=6)
    for name, run in (("m", RUN), ("anew", RUN), ("other", OTHER)):
        save_policy(folder / f"{name}.safetensors", build_policy(tiny, 0), {"run": run, "fingerprint": name})
    inside = {name: str(folder / name) for name in ("a.npz", "m.safetensors", "solved.parquet", "evaluated.parquet")}
    solve = ["reference", inside["a.npz"], "--solver", "pyvrp", *SOLVE, "--output", inside["solved.parquet"]]
    evaluate = ["evaluate", inside["a.npz"], "--model", inside["m.safetensors"]]
    assert main(solve) == 0
    assert main([*evaluate, "--output", inside["evaluated.parquet"]]) == 0
    ResultsFolder(folder / "results").evaluate("polarnet-ple-polar-n10-s0", 1.0)
    assert main(["tables", "in_distribution", "--results", str(folder / "results")]) == 0
    assert main(["report", "--results", str(folder / "results"), "--output", str(folder / "page.html")]) == 0
    write_text(folder / "x.vrp", PLAIN)
    write_text(folder / "y.vrp", vrp("other"))
    for name, numbers in (("plain", [0, 1]), ("short", [0])):
        actions = [[1, 0, 2, 0, 3, 0, 4, 5, 6]] * len(numbers)
        pq.write_table(pa.table({"instance": numbers, "actions": actions}), folder / f"{name}.parquet")
    with contextlib.chdir(folder):
        for command in (
            "import plain.parquet --instances a.npz --output imported.parquet",
            "figures in_distribution --results results",
            f"solve x.vrp y.vrp --seconds 0.1 --output out {ALONE}",
            f"{SOLVE_A} --first 1 --output first.parquet",
            "reference a.npz --best-of solved.parquet --output best.parquet",
            f"{LIBRARY} --output library.parquet",
            "import out/x.sol --instances x.vrp --method hgs --output hgs.parquet",
            f"{SET_X} --instances 1 --output set_x.parquet",
            "analyse architectures --num-customers 5 --output counts.parquet",
            "plot x.vrp out/x.sol --output x.png",
            "plot x.vrp out/x.sol --output x.pdf",
        ):
            assert main(command.split()) == 0
    write_text(folder / "notes.parquet", "my only copy")
    write_text(folder / "notes.html", "my only copy")
    write_text(folder / "notes.txt", "my only copy")
    return folder


@pytest.fixture
def work(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


EVALUATE_A = "evaluate a.npz --model m.safetensors"


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (f"{SOLVE_A} --output a.npz", "--output must end in .parquet"),
        (f"{SOLVE_A} --output notes.txt", "--output must end in .parquet"),
        (f"{SOLVE_A} --output notes.parquet", "notes.parquet exists and does not say what it holds"),
        (f"{SOLVE_A} --warm-start solved.parquet --output solved.parquet", "another file than the inputs"),
        (f"{SOLVE_A} --output evaluated.parquet", f"(method {RUN} instead of pyvrp)"),
        (
            f"reference a.npz --solver ortools {' '.join(SOLVE)} --output solved.parquet",
            "(method pyvrp instead of ortools)",
        ),
        (f"reference b.npz --solver pyvrp {' '.join(SOLVE)} --output solved.parquet", "(set another instead of this)"),
        (f"reference c.npz --solver pyvrp {' '.join(SOLVE)} --output solved.parquet", "(variant CVRP instead of VRPTW"),
        ("reference a.npz --best-of solved.parquet evaluated.parquet --output solved.parquet", "than the inputs"),
        ("reference a.npz --best-of evaluated.parquet --output solved.parquet", "instead of the best of several"),
        ("reference --merge solved.parquet --output solved.parquet", "another file than the inputs"),
        ("reference --merge evaluated.parquet --output solved.parquet", f"(method pyvrp instead of {RUN})"),
        (f"{EVALUATE_A} --output m.safetensors", "--output must end in .parquet"),
        (f"{EVALUATE_A} --output solved.parquet", f"(method pyvrp instead of {RUN})"),
        ("evaluate a.npz --model other.safetensors --output evaluated.parquet", f"(method {RUN} instead of {OTHER})"),
        ("evaluate b.npz --model m.safetensors --output evaluated.parquet", "(set another instead of this)"),
        (f"{EVALUATE_A} --output notes.parquet", "does not say what it holds"),
        (f"{EVALUATE_A} --output missing/{'x' * 300}.parquet", "File name too long"),
        (f"{EVALUATE_A} --output notes.txt/x.parquet", "cannot be written (Not a directory)"),
        ("evaluate-set-x --model m.safetensors --output solved.parquet", "does not say what it holds"),
        ("report --results results --output results/tables/in_distribution.md", "--output must end in .html"),
        ("report --results results --output notes.html", "notes.html exists and does not say what it holds"),
        ("generate --variant CVRP --num-customers 6 --instances 2 --seed 3 --output a.npz", "(seed 1 instead of 3)"),
        (f"{SOLVE_A} --first 1 --output solved.parquet", "holds 2 instances, of which 1 would be lost (instance 1)"),
        (f"{SOLVE_A} --start 1 --output solved.parquet", "would be lost (instance 0); choose another --output"),
        (f"{EVALUATE_A} --first 1 --output evaluated.parquet", "of which 1 would be lost (instance 1)"),
        ("reference --merge first.parquet --output solved.parquet", "of which 1 would be lost (instance 1)"),
        ("reference a.npz --best-of first.parquet --output best.parquet", "of which 1 would be lost (instance 1)"),
        ("import short.parquet --instances a.npz --method imported --output imported.parquet", "lost (instance 1)"),
        ("import out/y.sol --instances y.vrp --method hgs --output hgs.parquet", "1 would be lost (tiny)"),
        (f"reference y.vrp --solver pyvrp {' '.join(SOLVE)} --output library.parquet", "1 would be lost (tiny)"),
        (
            f"{SET_X} --instances X-n106-k14 --output set_x.parquet",
            "holds 1 instance, of which 1 would be lost (X-n101-k25)",
        ),
        ("analyse architectures --num-customers 5 --output solved.parquet", "does not say what it holds"),
        ("analyse architectures --num-customers 6 --output counts.parquet", "(num_customers [5] instead of [6])"),
        ("analyse margins solved.parquet --output solved.parquet", "another file than the inputs"),
    ],
)
def test_inputs_and_other_work_stay_as_they_are(
    work: Path, capsys: pytest.CaptureFixture[str], command: str, fault: str
) -> None:
    before = contents(work)
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert fault in error and error.count("\n") == 1
    assert contents(work) == before


@pytest.mark.parametrize(
    "command",
    [
        f"{SOLVE_A} --output solved.parquet",
        f"reference a.npz --solver pyvrp {' '.join(SOLVE)} --first 1 --output first.parquet",
        f"{SOLVE_A} --output first.parquet",
        f"{LIBRARY} --output library.parquet",
        f"reference x.vrp y.vrp --solver pyvrp {' '.join(SOLVE)} --output library.parquet",
        "import out/x.sol --instances x.vrp --method hgs --output hgs.parquet",
        f"{SET_X} --instances 1 --output set_x.parquet",
        "analyse architectures --num-customers 5 --output counts.parquet",
        f"{EVALUATE_A} --output evaluated.parquet",
        "evaluate a.npz --model anew.safetensors --output evaluated.parquet",  # the run was trained once more
        "report --results results --output page.html",
        "generate --variant CVRP --num-customers 6 --instances 2 --seed 1 --output a.npz",
    ],
)
def test_the_same_work_may_be_written_again(work: Path, command: str) -> None:
    assert main(command.split()) == 0


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("generate --variant CVRP --num-customers 6 --instances 2 --seed 1 --output a.npz", "a.npz"),
        (f"{SOLVE_A} --output solved.parquet", "solved.parquet"),
        (f"{EVALUATE_A} --output evaluated.parquet", "evaluated.parquet"),
        ("import plain.parquet --instances a.npz --output imported.parquet", "imported.parquet"),
        ("tables in_distribution --results results", "results/tables/in_distribution.parquet"),
        ("figures in_distribution --results results", "results/figures/in_distribution.png"),
        ("report --results results --output page.html", "page.html"),
        ("plot x.vrp out/x.sol --output x.png", "x.png"),
        ("plot x.vrp out/x.sol --output x.pdf", "x.pdf"),
        (f"solve x.vrp --seconds 0.1 --output out {ALONE}", "out/x.sol"),
    ],
)
def test_a_full_disk_is_one_line_and_keeps_what_was_there(
    work: Path, capsys: pytest.CaptureFixture[str], command: str, output: str
) -> None:
    """Each output is there already, whole, and there is room for half of it."""
    before, path = contents(work), work / output
    with full_disk(len(before[path]) // 2):
        assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert re.search(rf"{re.escape(output)} cannot be written \(.*File too large\); free space", error)
    assert error.count("\n") == 1
    assert contents(work) == before


def test_an_input_is_known_by_any_of_its_names(work: Path) -> None:
    (work / "link.parquet").symlink_to("solved.parquet")
    (work / "hard.parquet").hardlink_to("solved.parquet")
    for name in ("link.parquet", "hard.parquet", "results/../solved.parquet"):
        with pytest.raises(ConfigError, match="another file than the inputs"):
            require_output(work / name, ".parquet", {"set": "a"}, [work / "solved.parquet"])


def test_solutions_and_pictures_of_library_files(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replaced only by those of the same instance; what lies beside an instance is an input."""
    write_text(work / "y.vrp", PLAIN)
    assert main(f"solve x.vrp --seconds 0.1 --plot --output out {ALONE}".split()) == 0
    for picture in ("x.png", "x.pdf", "x.svg"):
        assert main(f"plot x.vrp out/x.sol --output {picture}".split()) == 0
        assert stated_subject(work / picture) == {"plot": "x"}
    assert main(f"solve x.vrp --seconds 0.1 --plot --output out {ALONE}".split()) == 0
    assert main(["plot", "x.vrp", "out/x.sol", "--output", "out/x.png"]) == 0
    shutil.copyfile(work / "out" / "x.sol", work / "out" / "y.sol")
    write_text(work / "x.sol", "Route #1: 1 2\nCost 1\n")
    before = contents(work)
    for command, fault in (
        (f"solve y.vrp --seconds 0.1 --output out {ALONE}", "(solution x instead of y)"),
        (f"solve x.vrp --seconds 0.1 --output . {ALONE}", "than the inputs"),
        ("plot y.vrp out/x.sol --output x.png", "(plot x instead of y)"),
        ("plot x.vrp out/x.sol --output out/x.sol", "--output must end in"),
    ):
        capsys.readouterr()
        assert main(command.split()) == 2
        assert fault in capsys.readouterr().err
        assert contents(work) == before


def test_what_a_text_or_picture_says_about_itself_is_found(tmp_path: Path) -> None:
    subject = {"plot": "X-n101-k25"}
    path = tmp_path / "plot.png"
    path.write_bytes(b"\x89PNG\xff" + marked(subject).encode() + b"\x00more" + bytes(10**6))
    assert stated_subject(path) == subject
    require_output(path, (".png", ".pdf"), subject)
    with pytest.raises(DataError, match=r"\(plot X-n101-k25 instead of C101\)"):
        require_output(path, (".png", ".pdf"), {"plot": "C101"})
    for name, content in (
        ("x.json", "[1]"),
        ("x.yaml", "{"),
        ("x.npz", "PK"),
        ("x.safetensors", ""),
        ("x.txt", "polarvrp-subject:{"),
    ):
        write_text(tmp_path / name, content)
        assert stated_subject(tmp_path / name) is None
    write_text(tmp_path / "x.json", '{"run": "a"}')
    assert stated_subject(tmp_path / "x.json") == {"run": "a"}


def test_weights_of_another_run_and_files_beside_them_stay(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "config").symlink_to(Path(__file__).parents[2] / "config")
    write_text(work / "own" / "config.yaml", "scale: quick\n")
    for output in ("other.safetensors", "own/weights.safetensors"):
        before = contents(work)
        words = ["train", RUN, "--validation", "a.npz", "--output", output]
        assert main(words) == 2
        assert (
            "other.safetensors holds something else" in (error := capsys.readouterr().err) or "own/config.yaml" in error
        )
        assert contents(work) == before
