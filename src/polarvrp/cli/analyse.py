"""``polarvrp analyse``: what a trained model or its training says beside gaps, one Parquet file an analysis."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Schema

    from polarvrp.model.policy import Policy
    from polarvrp.problem.instances import Instances, NodeArrays


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A word for each analysis."""
    analyses = parser.add_subparsers(dest="analysis", required=True, metavar="ANALYSIS")
    margins = analyses.add_parser("margins", help="how decisive the preferred pairs of each epoch were")
    margins.add_argument(
        "history",
        type=Path,
        metavar="HISTORY.parquet",
        help="of a training that compares tours in pairs, e.g. by polar",
    )
    margins.set_defaults(analyse=_margins)
    experts = analyses.add_parser("experts", help="gates and contributions of PLE's experts by layer and variant")
    experts.set_defaults(analyse=_experts)
    embeddings = analyses.add_parser("embeddings", help="embeddings of customers and their t-SNE map, by variant")
    embeddings.set_defaults(analyse=_embeddings)
    architectures = analyses.add_parser("architectures", help="parameters and multiply-adds of every network")
    architectures.add_argument(
        "--num-customers", type=int, nargs="+", default=[50, 100], metavar="N", help="sizes (default: 50 100)"
    )
    architectures.set_defaults(analyse=_architectures)
    for analysis in (experts, embeddings):
        analysis.add_argument("instances", type=Path, nargs="+", metavar="INSTANCES.npz", help="a set a variant")
        analysis.add_argument("--model", required=True, metavar="RUN_OR_PATH", help="as in polarvrp evaluate")
        analysis.add_argument("--fingerprint", help="refuse weights trained by another specification")
    for analysis in analyses.choices.values():
        analysis.add_argument("--output", type=Path, required=True, metavar="FILE.parquet", help="file to write")


def execute(options: argparse.Namespace) -> int:
    """Run the analysis."""
    options.analyse(options)
    return 0


def _margins(options: argparse.Namespace) -> None:
    from polarvrp.analysis.margins import write_margins
    from polarvrp.files import provenance, read_parquet

    stored = read_parquet(options.history, absent="train the run first")
    subject = _require_output(options, {"run": provenance(stored).get("run")}, [options.history])
    write_margins(options.history, stored, options.output, subject)


def _experts(options: argparse.Namespace) -> None:
    from polarvrp.analysis import experts

    _analyse_model(options, experts.expert_contributions, experts.SCHEMA)


def _embeddings(options: argparse.Namespace) -> None:
    from polarvrp.analysis import embeddings

    _analyse_model(options, embeddings.embeddings, embeddings.SCHEMA)


def _architectures(options: argparse.Namespace) -> None:
    from polarvrp.analysis import architectures
    from polarvrp.machine import versions

    subject = _require_output(options, {"num_customers": options.num_customers}, [])
    frame = architectures.architectures(options.num_customers)
    _write(options.output, frame, architectures.SCHEMA, {"versions": versions()} | subject)


def _analyse_model(
    options: argparse.Namespace, analyse: Callable[[Policy, list[Instances[NodeArrays]]], DataFrame], schema: Schema
) -> None:
    """Encode the sets with the model on CPU cores, where numbers are the same on every machine, and write the rows."""
    from polarvrp.evaluation.models import load_trained
    from polarvrp.problem.datasets import read_instances, variant_of

    sets = [read_instances(path) for path in options.instances]
    trained = load_trained(options.model, fingerprint=options.fingerprint, device="cpu")
    variants = sorted(variant_of(instances).name for instances in sets)
    subject = _require_output(options, {"run": trained.run, "variants": variants}, [*options.instances, trained.path])
    _write(options.output, analyse(trained.policy, sets), schema, trained.origin | subject)


def _require_output(options: argparse.Namespace, subject: dict[str, Any], inputs: list[Path]) -> dict[str, Any]:
    """What the file will say that it is of, once another output is refused; see ``outputs.require_output``."""
    from polarvrp.outputs import require_output

    subject = {"analysis": options.analysis} | subject
    require_output(options.output, ".parquet", subject, inputs)
    return subject


def _write(output: Path, frame: DataFrame, schema: Schema, provenance: dict[str, Any]) -> None:
    import pyarrow as pa

    from polarvrp.files import write_parquet

    write_parquet(output, pa.Table.from_pandas(frame, schema, preserve_index=False), provenance)
