"""Where trained models that ship with the package lie, ``data/pretrained/{name}``; imports nothing heavy.

A shipped model is a folder like that of a training (weights, resolved configuration, history, metadata) with the files
of solutions in ``evaluations/``: ``{variant}-n{n}.parquet``, and ``set_x.parquet`` where it was solved; those after one
local search in ``local_search/``, where they were made.
"""

import hashlib
from pathlib import Path

from polarvrp.errors import DataError
from polarvrp.files import file_digest

SHIPPED = Path(__file__).parents[1] / "data" / "pretrained"
PREFIX = "pretrained-n"
WEIGHTS = "weights.safetensors"
METADATA = "metadata.json"
MODEL_FILES = (WEIGHTS, "config.yaml", "history.parquet", METADATA)

_EVALUATIONS = "evaluations"


def shipped_name(num_customers: int) -> str:
    """Name of the shipped model of a size."""
    return f"{PREFIX}{num_customers}"


def shipped_size(name: str) -> int:
    """Number of customers that a shipped model was trained on."""
    return int(name.removeprefix(PREFIX))


def shipped_models() -> list[str]:
    """Names of all models that ship, by growing size."""
    names = (path.parent.name for path in SHIPPED.glob(f"{PREFIX}*/{WEIGHTS}"))
    return sorted((name for name in names if name.removeprefix(PREFIX).isdecimal()), key=shipped_size)


def nearest_shipped(num_customers: int) -> str | None:
    """Name of the shipped model whose size is nearest; None if none ships."""
    sizes = [shipped_size(name) for name in shipped_models()]
    return shipped_name(min(sizes, key=lambda size: abs(size - num_customers))) if sizes else None


def shipped_folder(name: str) -> Path:
    """Folder of a shipped model.

    Raises:
        DataError: If this version of the package ships no such model.
    """
    known = shipped_models()
    if name in known:
        return SHIPPED / name
    instead = f"there are {', '.join(known)}" if known else "it ships none"
    raise DataError(
        f"this version ships no model {name!r}, {instead}; train one, e.g. `polarvrp train polarnet-ple-polar-n50-s0`, "
        f"and name its run"
    )


def metadata_path(folder: Path) -> Path:
    """What the training of a model recorded about itself.

    Args:
        folder: Of the model.
    """
    return folder / METADATA


def solutions_path(folder: Path, variant: str, num_customers: int) -> Path:
    """Solutions of a test set that ship with a model.

    Args:
        folder: Of the model.
        variant: Of the test set.
        num_customers: Its size.
    """
    return folder / _EVALUATIONS / f"{variant}-n{num_customers}.parquet"


def searched_solutions_path(folder: Path, variant: str, num_customers: int) -> Path:
    """The same after one local search."""
    return folder / "local_search" / f"{variant}-n{num_customers}.parquet"


def set_x_path(folder: Path) -> Path:
    """Solutions of Set-X that ship with a model.

    Args:
        folder: Of the model.
    """
    return folder / _EVALUATIONS / "set_x.parquet"


def solutions_digest(name: str) -> str:
    """SHA-256 of the solutions that ship with a model, by the names and the content of their files.

    Raises:
        DataError: If this version of the package ships no such model.
    """
    digest = hashlib.sha256()
    for path in sorted((shipped_folder(name) / _EVALUATIONS).glob("*.parquet")):
        digest.update(path.name.encode() + bytes.fromhex(file_digest(path)))
    return digest.hexdigest()
