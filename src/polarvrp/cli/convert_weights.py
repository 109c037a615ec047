"""``polarvrp convert-weights``: weights of RouteFinder's and the POLAR authors' networks as models of ours."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="state dictionary: .safetensors, .pt or .ckpt")
    parser.add_argument("--backbone", required=True, metavar="B", help="e.g. routefinder, mtpomo, mvmoe, polarnet")
    parser.add_argument("--encoder", required=True, metavar="E", help="e.g. shared, deep, ple")
    parser.add_argument(
        "--num-customers", type=int, default=100, metavar="N", help="size that it was trained on (default: 100)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the model")


def execute(options: argparse.Namespace) -> int:
    """Convert and say what came of it."""
    from polarvrp.files import file_digest
    from polarvrp.model.conversion import convert_policy, read_state
    from polarvrp.model.saving import save_policy
    from polarvrp.outputs import require_output
    from polarvrp.study.shipped import WEIGHTS

    weights, run = options.output / WEIGHTS, options.output.name
    tensors = read_state(options.file)
    policy, code = convert_policy(tensors, options.backbone, options.encoder, options.num_customers)
    require_output(weights, ".safetensors", {"run": run, "converted_from": code}, [options.file])
    source = {"file": str(options.file), "sha256": file_digest(options.file)}
    save_policy(weights, policy, {"run": run, "converted_from": code, "source": source})
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    network = f"{options.backbone}-{options.encoder}"
    print(f"{weights}: {network} of {parameters:,} parameters from {code}'s names; use it by --model {options.output}")
    return 0
