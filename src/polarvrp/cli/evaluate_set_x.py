"""``polarvrp evaluate-set-x``: solve CVRPLIB's Set-X with a trained policy and print its mean gaps."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from polarvrp.cli.arguments import add_policy_arguments
from polarvrp.errors import ConfigError, one_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--output", type=Path, required=True, help="Parquet file, one row an instance")
    parser.add_argument(
        "--instances",
        nargs="+",
        default=["all"],
        metavar="NAME",
        help="instances such as X-n101-k25, or a number of smallest ones, or all (default: all)",
    )
    parser.add_argument("--starts", type=_count, metavar="S", help="starts an instance, or all (default: all)")
    add_policy_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    names = _chosen(options.instances)

    from polarvrp.decoding.greedy import Decoding, GreedySolver
    from polarvrp.evaluation.gaps import shown_gap
    from polarvrp.evaluation.models import load_trained
    from polarvrp.evaluation.set_x import evaluate_set_x, require_set_x_output, write_set_x
    from polarvrp.progress import progress
    from polarvrp.references.partial import PartialRecords
    from polarvrp.study.specs import EVALUATION_CODE_VERSION
    from polarvrp.study.weights import weights_digest
    from polarvrp.tables.set_x import mean_gaps
    from polarvrp.training.locks import leased_device

    decoding = Decoding(options.augmentations, max_starts=options.starts, engine=options.engine)
    effort = {"augmentations": options.augmentations, "starts": options.starts, "engine": options.engine}
    with leased_device() as device:
        trained = load_trained(options.model, options.run, options.fingerprint, str(device))
        require_set_x_output(options.output, trained.run, names, [trained.path])
        identity = effort | {"run": trained.run, "weights": weights_digest(trained.path), "bfloat16": trained.bfloat16}
        identity["code"] = EVALUATION_CODE_VERSION
        with PartialRecords(options.output, identity) as partial:  # a kill costs one instance
            kept = {row["instance"]: row for row in partial.records}
            left = [name for name in names if name not in kept]
            solved = evaluate_set_x(GreedySolver(trained.policy, decoding, trained.bfloat16), left)
            for row in progress(solved, len(names), trained.run, "instance", done=len(names) - len(left)):
                partial.append_record(row)
                kept[row["instance"]] = row
            rows = [kept[name] for name in names]
            write_set_x(options.output, rows, trained.origin | effort | {"run": trained.run})
            partial.remove()
    print(f"{options.output}: mean gaps to the best known costs, with rounded distances and as the paper counts")
    for group, gaps in mean_gaps(rows).iterrows():
        print(f"  {group}: {shown_gap(gaps['gap_percent'])} %, {shown_gap(gaps['published_gap_percent'])} %")
    return 0


def _chosen(words: Sequence[str]) -> list[str]:
    """Names of the instances that the words of ``--instances`` mean.

    Raises:
        ConfigError: If there is no such instance.
    """
    from polarvrp.problem.vrplib import set_x_names

    names = set_x_names()
    if len(words) == 1:
        (word,) = words
        if word == "all":
            return names
        if word.isdecimal() and int(word) > 0:
            return names[: int(word)]
    known = {name.lower(): name for name in names}
    for word in words:
        if word.lower() not in known:
            advice = one_of(word, names) if word.startswith(("X-", "x-")) else "write names, one number above 0, or all"
            raise ConfigError(f"--instances: Set-X has no instance {word!r}; {advice}")
    return list(dict.fromkeys(known[word.lower()] for word in words))


def _count(text: str) -> int | None:
    """A positive number, or None for ``all``."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number above 0 or all, got {text}")
    return int(text)
