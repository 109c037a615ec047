"""Numbers that are not finite: no weight changes by them, the batch is kept, and one line says where that was."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from helpers.tiny_training import RUN, tiny_spec, validation_sets
from polarvrp.cli.main import main
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.rollout import stuck_tours
from polarvrp.errors import DivergenceError, InfeasibleTourError
from polarvrp.model.registry import build_policy
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.seeds import derive_seed
from polarvrp.study.specs import canonical, fingerprint, parse_train_spec
from polarvrp.training.microbatch import Microbatch
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.step import TrainingStep

CPU = torch.device("cpu")


def po_config() -> TrainConfig:
    return parse_train_spec(tiny_spec(paradigm="po"))[1]


def state_of(policy: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    moments = [value.clone() for state in optimizer.state.values() for value in state.values()]
    return [parameter.detach().clone() for parameter in policy.parameters()] + moments


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_from_a_gradient_that_is_not_finite_on_neither_weights_nor_moments_change(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    """A GPU makes the next step before the numbers are read, and the network that diverged is kept then."""
    model, config = parse_train_spec(tiny_spec(paradigm="po"))
    policy = build_policy(model, 0)
    optimizer = make_optimizer(config, policy, CPU)
    step = TrainingStep(policy, optimizer, config, False, None)
    fresh = state_of(policy, optimizer)
    assert step.run(0, 1, 0, 4)["gradient_norm"] > 0
    before = state_of(policy, optimizer)
    assert not torch.equal(before[0], fresh[0])
    whole = Microbatch.backward

    def backward(microbatch: Microbatch) -> None:
        whole(microbatch)
        next(iter(policy.parameters())).grad.view(-1)[0] = value

    with monkeypatch.context() as patch:
        patch.setattr(Microbatch, "backward", backward)
        diverged = step.launch(0, 1, 1, 4)
    following = step.launch(0, 1, 2, 4)
    assert not diverged.read()["gradient_norm"] < float("inf")
    assert 0 < following.read()["gradient_norm"] < float("inf")
    assert all(torch.equal(one, other) for one, other in zip(before, state_of(policy, optimizer), strict=True))


@pytest.mark.parametrize("paradigm", ["rl", "polar"])
def test_a_training_that_diverges_ends_with_one_line_and_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], paradigm: str
) -> None:
    """At this learning rate the second step's network overflows."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run, spec = RUN.replace("polar-n", f"{paradigm}-n"), tiny_spec(paradigm=paradigm, learning_rate=1e30)
    (validation,) = validation_sets(tmp_path, "CVRP")
    words = ["--spec", canonical(spec), "--validation", str(validation), "--results", str(tmp_path / "results")]
    assert main(["train", run, *words]) == 2
    kept = tmp_path / "results" / "checkpoints" / run / fingerprint(spec) / "diverged.safetensors"
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"polarvrp train: {run}: loss nan, gradient norm nan in epoch 1, step 1, seed 0; no weight")
    assert str(kept) in error
    assert not (tmp_path / "results" / "models").exists()

    with safe_open(kept, framework="pt") as file:
        said = file.metadata()
        locs = file.get_tensor("instances.locs")
        weights = [file.get_tensor(name) for name in file.keys() if name.startswith("model.")]  # noqa: SIM118
    assert (said["run"], said["epoch"], said["step"], said["num_depots"], said["capacity"]) == (
        run,
        "1",
        "1",
        "1",
        "30",
    )
    drawn = generate_batch(8, 4, torch.Generator().manual_seed(derive_seed(0, "data", 0, 1, 1)), "cpu")
    assert torch.equal(locs, drawn.locs)
    assert all(tensor.isfinite().all() for tensor in weights)


def test_tours_that_do_not_end_are_blamed_on_whom_they_are_due() -> None:
    assert isinstance(stuck_tours(torch.zeros(2, 3), "node 4 cannot be served"), InfeasibleTourError)
    unknown = torch.tensor([[0.0, torch.nan]])
    error: Any = stuck_tours(unknown, "node 4 cannot be served")
    assert isinstance(error, DivergenceError) and "probabilities that are not finite" in str(error)
