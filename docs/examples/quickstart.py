"""The library in one page: generate, read_instances, describe, load_model, solve, check.

python docs/examples/quickstart.py                                       # seconds, with an untrained network
python docs/examples/quickstart.py --model polarnet-ple-polar-n50-s0     # with a model that you trained
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import polarvrp
from polarvrp.config.model import ModelConfig
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.problem.sets import write_set


def main() -> None:
    """Walk through the six functions."""
    parser = argparse.ArgumentParser(description="The library in one page.")
    parser.add_argument("--model", help="a run, a path or a shipped model (default: an untrained network)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(Path(folder), options.model)


def show(folder: Path, model_name: str | None) -> None:
    """Use each function once."""
    # Instances come from a generator or from a file; seed 1234 draws the published test sets.
    path = folder / "vrptw.npz"
    write_set(path, "VRPTW", num_customers=20, num_instances=4, seed=1234)  # what `polarvrp generate` does
    instances = polarvrp.read_instances(path)
    assert np.array_equal(instances.locs, polarvrp.generate("VRPTW", num_customers=20, instances=4).locs)
    print(f"{len(instances)} instances of VRPTW with {instances.num_customers} customers")

    # A network is a backbone with an encoder.
    described = polarvrp.describe("polarnet", "ple")
    print(f"polarnet with encoder ple: {described['parameters']:,} parameters")

    # A model is a trained network, found by its run, its path or the name it ships by.
    model = polarvrp.load_model(model_name or save_untrained(folder))
    print(f"model {model.run}: {model.num_customers} customers, trained on {len(model.variants)} variants")

    # A model solves all instances together, a solver each of them until its time is up.
    by_model = polarvrp.solve(instances, model)
    by_pyvrp = polarvrp.solve(instances, seconds=0.5)
    for number, route in enumerate(by_pyvrp[0].routes, start=1):
        print(f"  instance 0, route {number} of PyVRP: customers {', '.join(map(str, route.customers))}")

    # Cost and feasibility come from code that neither of them shares.
    ours, reference = polarvrp.check(instances, by_model), polarvrp.check(instances, by_pyvrp)
    print(f"{model.run}: {ours.summary}")
    print(f"PyVRP: {reference.summary}")
    gaps_percent = 100 * (ours.costs - reference.costs) / reference.costs
    print(f"mean gap to PyVRP: {gaps_percent.mean():.1f} %")


def save_untrained(folder: Path) -> Path:
    """Weights of a network that has learnt nothing, so that the page needs no training."""
    print("No --model was given: the network below is UNTRAINED. Its routes are feasible, and long.")
    path = folder / "weights.safetensors"
    save_policy(path, build_policy(ModelConfig(num_customers=20), seed=0), {"run": "untrained"})
    return path


if __name__ == "__main__":
    main()
