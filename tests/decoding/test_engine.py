"""The levels of the engine agree; nothing is lost in silence; training steps of level fused can be captured.

On a CPU the kernels run in Triton's interpreter, at tiny sizes; the tests marked ``gpu`` repeat that at full size.
"""

import concurrent.futures
import multiprocessing
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.instances import generated, mixed, mixed_arrays
from helpers.model_samples import shaken
from helpers.worker_tasks import problems_of
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.engine import Engine, make_engine
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import BufferOverflowError, Rollout, multi_start, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.errors import ConfigError
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances, to_tensors
from polarvrp.problem.variants import VARIANTS
from polarvrp.training.plan import Plan
from polarvrp.training.step import TrainingStep

fused = pytest.importorskip("polarvrp.decoding.fused.engine")
self_check = pytest.importorskip("polarvrp.decoding.fused.self_check").self_check
TINY = ModelConfig(width=32, heads=2, layers=1, feedforward_width=32)
FULL = ModelConfig()
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter serves where there is no GPU")
SETTINGS = [
    pytest.param(TINY, 5, "cpu", marks=INTERPRETED),
    *(pytest.param(FULL, n, "cuda", marks=pytest.mark.gpu) for n in (20, 50, 100)),
]
GPU_SIZES = [pytest.param(n, marks=pytest.mark.gpu) for n in (20, 50, 100)]


def policy_on(config: ModelConfig, device: str, backbone: str = "polarnet", encoder: str = "ple") -> Policy:
    return shaken(build_policy(config.replace(backbone=backbone, encoder=encoder), 0)).to(device).eval()


def sampler_on(device: str, seed: int) -> Sampler:
    return Sampler(torch.Generator(device).manual_seed(seed))


def embed(policy: Policy, instances: Instances[Tensor]) -> Tensor:
    with bfloat16_products(instances.locs.device, instances.locs.is_cuda):
        return policy.encode(instances).embeddings.detach()


def rolled_out(engine: Engine, policy: Policy, environment: Environment, seed: int | None = 1) -> Rollout:
    """Recorded tours; greedy ones without a seed."""
    device = environment.instances.locs.device
    starts = with_greedy_row(multi_start(environment)) if environment.num_depots == 1 else multi_start(environment)
    sampler = None if seed is None else sampler_on(device.type, seed)
    with bfloat16_products(device, device.type == "cuda"):
        embeddings = embed(policy, environment.instances)
        return engine.rollout(policy, embeddings, environment, starts, sampler, greedy_last=True, record=True)


def decoder_gradient(
    engine: Engine, policy: Policy, embeddings: Tensor, instances: Instances[Tensor], decisions: Any, weights: Tensor
) -> Tensor:
    policy.zero_grad()
    leaf = embeddings.clone().requires_grad_()
    with bfloat16_products(leaf.device, leaf.dtype == torch.bfloat16):
        engine.score_gradient(policy, leaf, instances, decisions, weights)
    parts = [leaf.grad, *(parameter.grad for parameter in policy.decoder.parameters())]
    return torch.cat([part.float().flatten() for part in parts if part is not None])


@pytest.mark.gpu
@pytest.mark.first_light
def test_first_light() -> None:
    """One network and size, with everything that the level consists of, captured too."""
    agreement, capture_problem = self_check(policy_on(FULL, "cuda"), 51, bfloat16=True)
    assert agreement.problem is None
    assert capture_problem is None


@pytest.mark.parametrize(("backbone", "encoder"), [("polarnet", "ple"), ("routefinder", "shared"), ("cada", "shared")])
@pytest.mark.parametrize("depots", [1, 3])
@pytest.mark.parametrize(("config", "size", "device"), SETTINGS)
def test_levels_agree(config: ModelConfig, size: int, device: str, depots: int, backbone: str, encoder: str) -> None:
    names = [name for name, variant in VARIANTS.items() if variant.num_depots == depots]
    instances = to_tensors(mixed_arrays(names if device == "cuda" else names[5::9], size, count=1), device)
    policy, environment = policy_on(config, device, backbone, encoder), Environment(instances)
    engine, plain = make_engine(policy, instances.num_nodes, "fused"), ParallelEngine(graphed=False)
    tours = rolled_out(engine, policy, environment)
    engine.synchronize(environment, tours, engine.usage(tours))

    replayed = plain.replay(environment, tours.actions, num_free=1 if depots == 1 else 2)
    legal = tours.cost.isfinite()
    assert legal.any(1).all()
    assert torch.equal(replayed.legal, legal)
    assert torch.equal(replayed.cost[legal], tours.cost[legal])
    embeddings = embed(policy, instances)
    weights = torch.randn(tours.cost.shape, generator=torch.Generator().manual_seed(3)).to(device) * legal
    wanted = plain.score(policy, embeddings.float(), instances, replayed.decisions)
    expected = decoder_gradient(plain, policy, embeddings.float(), instances, replayed.decisions, weights)
    with bfloat16_products(instances.locs.device, device == "cuda"):
        scored = engine.score(policy, embeddings, instances, tours.decisions)
        rounded = plain.score(policy, embeddings, instances, replayed.decisions)
    found = decoder_gradient(engine, policy, embeddings, instances, tours.decisions, weights)
    rounded_gradient = decoder_gradient(plain, policy, embeddings, instances, replayed.decisions, weights)
    bars = (0.01, 0.1, 0.01) if device == "cuda" else (1e-5, 1e-4, 1e-5)
    # What level parallel loses in the same precision is its forward pass's rounding, which no level can spare.
    unavoidable = errors((rounded - wanted)[legal], rounded_gradient, expected)
    for likelihood in (tours.log_likelihood, scored):
        found_errors = errors((likelihood - wanted)[legal], found, expected)
        for error, bar, allowed, margin in zip(found_errors, bars, unavoidable, (1.1, 1.2, 1.1), strict=True):
            assert error < max(bar, margin * allowed)


def errors(difference: Tensor, gradient: Tensor, expected: Tensor) -> tuple[float, float, float]:
    """Mean and largest error of log-likelihoods, relative error of a gradient."""
    relative = (gradient - expected).norm() / expected.norm()
    return float(difference.abs().mean()), float(difference.abs().max()), float(relative)


@pytest.mark.parametrize("size", GPU_SIZES)
@pytest.mark.parametrize("greedy", [True, False])
def test_ten_thousand_tours_of_every_variant_pass_the_exact_checker(size: int, greedy: bool) -> None:
    policy = policy_on(FULL, "cuda")
    spawned = multiprocessing.get_context("spawn")  # a process that uses a GPU has threads and must not fork
    with concurrent.futures.ProcessPoolExecutor(mp_context=spawned) as pool:
        checks = []
        for name, variant in VARIANTS.items():
            count = -(-10_000 // (size * variant.num_depots))
            arrays = generated(name, size, count)
            environment = Environment(to_tensors(arrays, "cuda"))
            engine = make_engine(policy, environment.instances.num_nodes, "fused")
            tours = rolled_out(engine, policy, environment, None if greedy else 2)
            engine.synchronize(environment, tours, engine.usage(tours))
            checks.append(pool.submit(problems_of, arrays, tours.actions.cpu().numpy(), tours.cost.cpu().numpy()))
        assert [problem for check in checks for problem in check.result()] == []


def config_of(paradigm: str, size: int, batch: int, **changes: Any) -> TrainConfig:
    return TrainConfig(paradigm=paradigm, num_customers=size, batch_size=batch, refinement_start_epoch=0, **changes)


def step_of(policy: Policy, config: TrainConfig, engine: str = "fused") -> TrainingStep:
    from polarvrp.local_search.refinement import Refiner
    from polarvrp.training.optimizer import make_optimizer

    device = next(policy.parameters()).device
    optimizer = make_optimizer(config, policy, device)
    return TrainingStep(policy, optimizer, config, device.type == "cuda", Refiner(0), engine=engine)


def numbers_of(policy: Policy) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


def timeless(sums: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in sums.items() if not key.startswith("seconds")}


@INTERPRETED
@pytest.mark.parametrize("paradigm", ["po", "rl"])
def test_a_step_without_room_is_made_again_and_changes_nothing(
    paradigm: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def outcome(room: float) -> tuple[dict[str, float], list[float], Tensor]:
        monkeypatch.setattr(fused, "INITIAL_ROOM", room)
        policy = policy_on(TINY, "cpu")
        step = step_of(policy, config_of(paradigm, 5, 3, normalize_rewards=paradigm == "rl"))
        return timeless(step.run(0, 1, 0, 3)), step.reward_means, numbers_of(policy)

    sums, means, numbers = outcome(1.6)
    caplog.set_level("INFO")
    again, means_again, scarce = outcome(0.2)
    assert "decisions found no room; making 1.5 times as much" in caplog.text
    assert again == sums
    assert means_again == means
    assert bool(means) == (paradigm == "rl")
    torch.testing.assert_close(scarce, numbers, rtol=0, atol=1e-6)


@INTERPRETED
def test_lost_decisions_are_told_and_room_follows_need() -> None:
    policy, engine = policy_on(TINY, "cpu"), fused.FusedEngine()
    environment = Environment(mixed(["CVRP", "OVRPTW", "VRPL"], 6, count=1))

    def sound_tours() -> Rollout:
        tours = rolled_out(engine, policy, environment)
        engine.synchronize(environment, tours, engine.usage(tours))
        return tours

    roomy = sound_tours()
    assert engine.resize_buffers()
    assert not engine.resize_buffers()
    fitted = sound_tours()
    assert len(fitted.decisions.row) < len(roomy.decisions.row)
    engine._room = 0.2
    with pytest.raises(BufferOverflowError, match=r"decisions found no room"):
        sound_tours()
    for _ in range(4):
        try:
            sound_tours()
        except BufferOverflowError:
            continue
        return
    pytest.fail("the room did not grow")


@INTERPRETED
def test_buffers_are_fitted_once_steps_have_warmed_up() -> None:
    """What is captured then has the room that it needs, not that of a first guess."""
    step = step_of(policy_on(TINY, "cpu"), config_of("po", 5, 3))
    engine = step._context.engine
    assert isinstance(engine, fused.FusedEngine)
    rooms = [engine._room]
    for number in range(3):
        step.run(0, 1, number, 3)
        rooms.append(engine._room)
    assert rooms[0] == rooms[1] == fused.INITIAL_ROOM
    assert rooms[2] < rooms[1]
    assert rooms[3] == rooms[2]


class NoWaiting(TorchDispatchMode):
    """Fails on operations that wait for the device or have shapes that depend on values."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal", "lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert name not in self.FORBIDDEN, f"{name} cannot be captured"
        if name == "index":
            assert all(index is None or index.dtype != torch.bool for index in args[1])
        return func(*args, **(kwargs or {}))


@INTERPRETED
@pytest.mark.parametrize("paradigm", ["rl", "polar"])
def test_no_phase_of_a_fused_step_waits_for_the_device(paradigm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be captured on a GPU runs here under a watch, once everything has run before."""
    policy = policy_on(TINY, "cpu")
    config = config_of(paradigm, 5, 2, normalize_rewards=paradigm == "rl")
    step = step_of(policy, config)
    step.run(0, 1, 0, 2)
    watched = []

    def run(self: Plan, phase: str, name: str, function: Any) -> None:
        watched.append(name)
        # The optimiser of a CPU reads its step counter; that of a GPU is another.
        with NoWaiting() if phase != "optimiser" else nullcontext():
            function()

    monkeypatch.setattr(Plan, "run", run)
    step.run(0, 1, 1, 2)
    assert {"generate", "encode 0", "decode 0", "loss 0", "backward 0"} <= set(watched)


@pytest.mark.gpu
@pytest.mark.parametrize("paradigm", ["rl", pytest.param("po", marks=pytest.mark.first_light), "polar"])
def test_captured_steps_equal_uncaptured_ones(paradigm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> tuple[list[dict[str, float]], Tensor]:
        policy = build_policy(FULL, 0).to("cuda").train()
        step = step_of(policy, config_of(paradigm, 20, 32))
        sums = [timeless(step.run(0, 1, number, 32)) for number in range(8)]
        return sums, numbers_of(policy)

    captured, numbers = outcome()
    again, same = outcome()
    assert again == captured
    assert torch.equal(same, numbers)
    monkeypatch.setattr(Plan, "replays", False)
    plain, expected = outcome()
    for mine, theirs in zip(captured, plain, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)
    assert (numbers - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(("backbone", "encoder"), [("mvmoe", "shared"), ("moses", "shared"), ("polarnet", "deep")])
def test_graphed_steps_of_a_rollout_equal_single_ones(backbone: str, encoder: str) -> None:
    policy = policy_on(FULL, "cuda", backbone, encoder)
    environment = Environment(to_tensors(mixed_arrays(["CVRP", "OVRPBLTW"], 50), "cuda"))
    graphed, plain = ParallelEngine(), ParallelEngine(graphed=False)
    for _ in range(3):
        found, wanted = (rolled_out(engine, policy, environment, seed=None) for engine in (graphed, plain))
        assert torch.equal(found.cost, wanted.cost)
        torch.testing.assert_close(found.log_likelihood, wanted.log_likelihood)


@INTERPRETED
def test_the_level_is_chosen_by_network_size_and_device() -> None:
    policy = policy_on(TINY, "cpu")
    assert make_engine(policy, 7).level == "parallel"
    assert make_engine(policy, 7, "fused").level == "fused"
    with pytest.raises(ConfigError, match="up to 128 nodes, not 200; use engine parallel"):
        make_engine(policy, 200, "fused")
    mixture = build_policy(TINY.replace(backbone="mvmoe", encoder="shared"), 0)
    with pytest.raises(ConfigError, match="MixtureOutput; use engine parallel"):
        make_engine(mixture, 7, "fused")
    with pytest.raises(ConfigError, match="engine must be one of auto, parallel, fused, got 'fast'"):
        make_engine(policy, 7, "fast")


@INTERPRETED
def test_a_polar_step_of_level_fused_refines_like_level_parallel() -> None:
    """The same tours, likelihoods and gradients up to rounding: sums agree where no sample enters."""
    policy = policy_on(TINY, "cpu")
    sums = step_of(policy, config_of("polar", 5, 3)).run(0, 1, 0, 3)
    other = policy_on(TINY, "cpu")
    wanted = step_of(other, config_of("polar", 5, 3), "parallel").run(0, 1, 0, 3)
    assert sums["greedy_cost"] == pytest.approx(wanted["greedy_cost"], rel=1e-6)
    assert sums["instances"] == wanted["instances"] == 3
    assert sums["best_cost"] == pytest.approx(wanted["best_cost"], rel=0.2)
