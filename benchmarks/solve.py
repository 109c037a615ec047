"""Where does a network help ``polarvrp solve``? Construction alone, PyVRP alone, both; at 1, 5 and 20 seconds.

    python benchmarks/solve.py             # hours on 2 cores; goes on where it stopped
    python benchmarks/solve.py --print     # the tables of what is there
    python benchmarks/solve.py --print --output benchmarks/solve.parquet     # those of docs/solve.md
    python benchmarks/solve.py --instances 1 --seconds 0.5 --kinds VRPTW --model RUN --output try.jsonl

Instances of Set-X in three classes of size, evenly spread over each, and generated ones of every other kind that is
read, in whole numbers. A row an instance, method and limit is appended as soon as it is made; rows that are there are
not made again. Gaps are to the best-known cost in Set-X, elsewhere to the best cost among all rows of the instance, so
that 0 means no more than best here. One file after the other, as a user would solve it: the network takes all threads
that PyTorch has, PyVRP one.
"""

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from polarvrp.errors import exit_on_mistake
from polarvrp.evaluation.models import Model, load_trained
from polarvrp.library.solving import CONSTRUCTION_SHARE, solve_library, warm_up
from polarvrp.machine import processor_name
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.library_twins import drawn_library
from polarvrp.problem.vrplib import load_set_x, set_x_names
from polarvrp.progress import progress
from polarvrp.solvers.versions import installed_version
from polarvrp.study.shipped import nearest_shipped
from polarvrp.study.weights import weights_digest

SHARES = {"network": 1.0, "PyVRP": 0.0, "both": CONSTRUCTION_SHARE}
"""Of the limit that the network gets, by method."""

SET_X_CLASSES = {"Set-X, n < 250": (0, 250), "Set-X, 250 to 500": (250, 501), "Set-X, n > 500": (501, 1001)}
GENERATED_CUSTOMERS = 100
SERVICE = 30.0
"""Of each customer, in units of a square with side 1000."""

EQUAL_PERCENT = 0.005
"""Costs that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class Case:
    """An instance of a kind, and its best-known cost if it has one."""

    kind: str
    library: LibraryInstance
    best_known: float | None


def main() -> int:
    """Make what is missing, print."""
    options = parse()
    if not options.print:
        with exit_on_mistake("benchmarks/solve.py"):
            run(options)
    rows = read_rows(options.output)
    if not rows:
        print(f"{options.output} holds no rows")
        return 1
    print_tables(pd.DataFrame(rows))
    return 0


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--model", help="a run, a path or a shipped model (default: the shipped one nearest to n = 100)"
    )
    parser.add_argument("--instances", type=int, default=20, help="of each kind")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 5.0, 20.0])
    parser.add_argument("--kinds", nargs="+", choices=(*SET_X_CLASSES, *KINDS), default=[*SET_X_CLASSES, *KINDS])
    parser.add_argument("--methods", nargs="+", choices=tuple(SHARES), default=[*SHARES])
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/solve.jsonl"))
    parser.add_argument("--print", action="store_true", help="print the tables of the rows that are there")
    options = parser.parse_args()
    if options.output.suffix == ".parquet" and not options.print:
        parser.error("rows are appended to a .jsonl file; a .parquet file can only be printed, by --print")
    return options


def run(options: argparse.Namespace) -> None:
    """Append the rows that are missing."""
    name = options.model or nearest_shipped(GENERATED_CUSTOMERS)
    if name is None:
        raise SystemExit("benchmarks/solve.py: no model ships with this version; name one by --model")
    model = load_trained(name)
    warm_up(model)
    network = {"model": model.run, "digest": weights_digest(model.path)[:16]}
    made: dict[str, Any] = {
        "cpu": processor_name(),
        "threads": torch.get_num_threads(),
        "pyvrp": installed_version("pyvrp"),
        "python": platform.python_version(),
    }
    there = {key_of(row) for row in read_rows(options.output)}
    by_kind = [list(cases_of(kind, options.instances)) for kind in options.kinds]
    # Kinds take turns, so that a run that is stopped early has as many instances of each.
    cases = [case for turn in zip_longest(*by_kind) for case in turn if case is not None]
    jobs = [(case, seconds, method) for seconds in options.seconds for case in cases for method in options.methods]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    end_last_line(options.output)
    with options.output.open("a", encoding="utf-8") as file:
        for case, seconds, method in progress(jobs, len(jobs), "solve", "row"):
            about = {"kind": case.kind, "instance": case.library.name, "method": method, "limit_seconds": seconds}
            about |= made | (network if SHARES[method] else dict.fromkeys(network))
            if key_of(about) not in there:
                row = about | solved(case, model, seconds, method) | {"date": time.strftime("%Y-%m-%d")}
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())


def solved(case: Case, model: Model, seconds: float, method: str) -> dict[str, Any]:
    """What a method makes of a case; a network alone may have no solution in time."""
    share = SHARES[method]
    found = solve_library(case.library, model if share else None, seconds, share=share)
    built, improved = found.construction, found.improvement
    alone = method == "network"
    cost = found.cost if not alone else built.cost if built is not None else None
    return {
        "num_customers": case.library.num_customers,
        "best_known": case.best_known,
        "cost": None if cost is None else float(cost),
        "seconds": built.seconds if alone and built is not None else found.seconds,
        "starts": 0 if built is None else built.starts,
        "symmetries": 0 if built is None else built.symmetries,
        "network_seconds": 0.0 if built is None else built.seconds,
        "from_network": improved is not None and improved.from_network,
        "iterations": 0 if improved is None else improved.iterations,
    }


def cases_of(kind: str, count: int) -> Iterator[Case]:
    """Instances of a kind."""
    if kind in KINDS:
        for seed in range(count):
            library = KINDS[kind](seed)
            yield Case(kind, dataclasses.replace(library, name=f"{kind}-{seed}"), None)
        return
    low, high = SET_X_CLASSES[kind]
    names = [name for name in set_x_names() if low <= int(name.split("-")[1][1:]) - 1 < high]
    for place in np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)):
        library, best_known, _ = load_set_x(names[place])
        yield Case(kind, library, float(best_known))


def drawn(variant: str, seed: int) -> LibraryInstance:
    return drawn_library(variant, GENERATED_CUSTOMERS, seed)


def with_service(seed: int) -> LibraryInstance:
    """A limit that counts service, wider by a quarter of all service."""
    library = drawn("VRPL", seed)
    service = np.full(len(library.demands), SERVICE)
    service[0] = 0.0
    wider = library.distance_limit + SERVICE * GENERATED_CUSTOMERS / 4
    return dataclasses.replace(library, service_times=service, distance_limit=wider)


def with_matrix(seed: int, asymmetric: bool) -> LibraryInstance:
    """Distances as a matrix without coordinates, stretched at random as roads do: both ways alike, or each its own."""
    from polarvrp.problem.library_instances import points_of_matrix

    library, random = drawn("CVRP", seed), np.random.default_rng(seed)
    lengths = np.hypot(*(axis[:, None] - axis for axis in library.coordinates.T))
    stretch = random.uniform(1.0, 1.4, lengths.shape)
    matrix = np.rint(lengths * (stretch if asymmetric else np.triu(stretch) + np.triu(stretch, 1).T))
    return dataclasses.replace(library, matrix=matrix, coordinates=points_of_matrix(matrix), rounding=Rounding.NONE)


KINDS: dict[str, Callable[[int], LibraryInstance]] = {
    "VRPTW": lambda seed: drawn("VRPTW", seed),
    "VRPL": lambda seed: drawn("VRPL", seed),
    "VRPL with service": with_service,
    "VRPB": lambda seed: drawn("VRPB", seed),
    "OVRP": lambda seed: drawn("OVRP", seed),
    "MDVRP": lambda seed: drawn("MDVRP", seed),
    "MDVRPTW": lambda seed: drawn("MDVRPTW", seed),
    "CVRP, matrix": lambda seed: with_matrix(seed, asymmetric=False),
    "CVRP, asymmetric": lambda seed: with_matrix(seed, asymmetric=True),
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows made so far, or kept as Parquet; a last line cut off by a crash is left out."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path).to_dict("records")
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            print(f"{path}: a line is no JSON and left out: {line[:40]!r}")
    return rows


def end_last_line(path: Path) -> None:
    """Let the next row begin a line of its own, after a crash too."""
    text = path.read_bytes() if path.exists() else b""
    if text and not text.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is about; PyVRP alone has no model."""
    return tuple(row[name] for name in ("kind", "instance", "method", "limit_seconds", "digest", "cpu"))


def print_tables(rows: pd.DataFrame) -> None:
    """Mean gaps by kind, limit and method, and how often both beat PyVRP alone, as Markdown."""
    best = rows.groupby("instance")["cost"].transform("min")
    reference = rows["best_known"].astype(float).fillna(best)
    rows = rows.assign(gap=100 * (rows["cost"] - reference) / reference)
    order = [kind for kind in (*SET_X_CLASSES, *KINDS) if kind in set(rows["kind"])]
    for seconds in sorted(rows["limit_seconds"].unique()):
        here = rows[rows["limit_seconds"] == seconds]
        lines = [line_of(kind, here[here["kind"] == kind]) for kind in order if kind in set(here["kind"])]
        print(f"{seconds:g} s\n\n{pd.DataFrame(lines).to_markdown(index=False, disable_numparse=True)}\n")
        print(f"{summary_of(here)}\n")
    last = rows.iloc[-1]
    models = ", ".join(rows["model"].dropna().unique()) or "No model"
    print(
        f"Mean gaps in percent; – where the network finished no tour of some instance in time. {models}, "
        f"{last['threads']} threads, PyVRP {last['pyvrp']}, {last['cpu']}, {last['date']}."
    )


def summary_of(rows: pd.DataFrame) -> str:
    """What both cost against PyVRP alone, over all kinds, and how often PyVRP began at the network's tour."""
    costs = rows.pivot_table(index="instance", columns="method", values="cost").reindex(columns=[*SHARES])
    change = (100 * (costs["both"] - costs["PyVRP"]) / costs["PyVRP"]).mean()
    begun = 100 * rows.loc[rows["method"] == "both", "from_network"].mean()
    return f"Both against PyVRP: {change:+.2f} % in the mean; begun at the network's tour: {begun:.0f} %."


def line_of(kind: str, rows: pd.DataFrame) -> dict[str, str]:
    """A line of a table: rows of one kind and limit."""
    gaps = rows.pivot_table(index="instance", columns="method", values="gap", dropna=False).reindex(columns=[*SHARES])
    means = {name: "–" if gaps[name].isna().any() else f"{gaps[name].mean():.2f}" for name in SHARES}
    gain = (gaps["PyVRP"] - gaps["both"]).dropna()
    better, worse = int((gain > EQUAL_PERCENT).sum()), int((gain < -EQUAL_PERCENT).sum())
    both = rows[rows["method"] == "both"]
    effort = f"{both['starts'].median():g} x {both['symmetries'].median():g}" if len(both) else "–"
    verdicts = f"{better}/{len(gain) - better - worse}/{worse}"
    line = {"": kind, "instances": str(rows["instance"].nunique())}
    return line | means | {"both better/equal/worse": verdicts, "starts x symmetries": effort}


if __name__ == "__main__":
    raise SystemExit(main())
