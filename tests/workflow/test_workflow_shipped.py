"""Models that ship are evaluated where no evaluation comes with them: at sizes without published solutions."""

from pathlib import Path

import pytest

from helpers.model_samples import policy_of
from helpers.snakemake import Workflow
from polarvrp.files import provenance
from polarvrp.model.saving import save_policy
from polarvrp.solutions.solutions import read_solutions

RUN = "polarnet-ple-polar-n20-all-s0"

pytestmark = pytest.mark.workflow


@pytest.fixture
def shipping(workflow: Workflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workflow:
    """The workflow of a package with an untrained model of 20 customers, and one variant to save time."""
    place = tmp_path / "pretrained"
    for size in (20, 50):
        policy = policy_of("polarnet", "shared", num_customers=size)
        metadata = {"run": RUN.replace("20", str(size)), "fingerprint": "none"}
        save_policy(place / f"pretrained-n{size}" / "weights.safetensors", policy, metadata)
    (tmp_path / "patches").mkdir()
    patch = f"import pathlib, polarvrp.study.shipped as s\ns.SHIPPED = pathlib.Path({str(place)!r})\n"
    (tmp_path / "patches" / "sitecustomize.py").write_text(patch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "patches"), prepend=":")
    (tmp_path / "mine.yaml").write_text("variants: [CVRP, MDVRP]\n")
    return workflow


def test_main_tables_ask_for_them(shipping: Workflow) -> None:
    jobs = shipping.dry("results/tables/in_distribution.parquet", "--configfile", "mine.yaml").jobs
    assert jobs["evaluate_shipped"] == 1 and "evaluate_shipped_zero_shot" not in jobs
    jobs = shipping.dry("results/tables/zero_shot.parquet", "--configfile", "mine.yaml").jobs
    assert jobs["evaluate_shipped_zero_shot"] == 1
    assert jobs["solve_references"] == 2 * 2  # of the models' size and of the shipped one's
    jobs = shipping.dry("results/figures/sample_routes.png", "--configfile", "mine.yaml").jobs
    assert jobs["evaluate_shipped"] == jobs["evaluate_shipped_zero_shot"] == 1, "whose routes it may draw"
    plan = shipping("results/figures/sample_routes.png", "--dry-run", "--configfile", "mine.yaml").output
    read = plan.partition("draw_sample_routes:")[2].partition("output:")[0]
    assert "results/datasets/test/MDVRP-n20.npz" in read, "without its instances no route can be drawn"
    jobs = shipping.dry("results/tables/training_paradigms.parquet", "--configfile", "mine.yaml").jobs
    assert "evaluate_shipped" not in jobs


def test_one_is_evaluated(shipping: Workflow) -> None:
    target = "results/evaluations/shipped/pretrained-n20/CVRP-n20.parquet"
    run = shipping(target, "--configfile", "mine.yaml", "--cores", "1")
    assert run.code == 0, run.output
    solved = read_solutions(shipping.folder / target)
    assert solved["run"].to_pylist() == [RUN, RUN] and provenance(solved)["augmentations"] == 8
    assert shipping(target, "--configfile", "mine.yaml", "--cores", "1").nothing_to_do
