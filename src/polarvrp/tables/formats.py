"""Words and numbers of the printed tables: labels of methods, durations, emphasis, and the line that warns."""

import re
from collections.abc import Iterable, Sequence

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.methods import METHODS
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.tables.gap_tables import seed_of, stem_of
from polarvrp.tables.paper import PAPER_SCALE, TRAINING_COST_METHODS
from polarvrp.tables.sheets import MISSING, Cell

METHOD_LABELS = {stem: record.label for stem, record in METHODS.items()}
TRAINING_COST_LABELS = {stem: label for label, stem in TRAINING_COST_METHODS.items()}
BACKBONE_LABELS = {name: BACKBONES[name].label for name in grid_backbones()}
PARADIGM_LABELS = {name: record.label for name, record in PARADIGMS.items()}
ENCODER_LABELS = {name: record.label for name, record in ENCODERS.items()}


def method_label(method: str, labels: dict[str, str] = METHOD_LABELS) -> str:
    """The paper's label of a method, with its seed unless that is 0; other methods by their own name."""
    label = labels.get(stem_of(method))
    if label is None:
        return method
    return f"{label}, seed {seed_of(method)}" if seed_of(method) else label


def scale_warning(scale: str) -> str:
    """Line that tells demonstrations from results, empty at the paper's scale."""
    return "" if scale == PAPER_SCALE else f"Scale {scale}: shows that the pipeline works. Nothing here is a result."


def best_in_bold(values: Sequence[float | None], form: str, competing: Sequence[bool] | None = None) -> list[Cell]:
    """Values as text; those that print like the smallest competing one in bold.

    Args:
        values: One a method; None prints as a dash.
        form: Format of a value.
        competing: Which of them compete for bold; all when None.
    """
    texts = [MISSING if value is None else minus(form.format(value)) for value in values]
    compete = competing if competing is not None else [True] * len(values)
    entered = [value for value, does in zip(values, compete, strict=True) if does and value is not None]
    best = minus(form.format(min(entered))) if entered else None
    return [Cell(text, bold=does and text == best) for text, does in zip(texts, compete, strict=True)]


def minus(text: str) -> str:
    """A printed number with a true minus sign, and none before zero."""
    return re.sub(r"^-(?=0\.?0*(%|$))", "", text).replace("-", "−")


def duration(seconds: float | None) -> str:
    """Seconds in the two largest units that matter."""
    if seconds is None:
        return MISSING
    if seconds < 59.5:
        return f"{seconds:.{2 if seconds < 1 else 1 if seconds < 10 else 0}f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h {minutes:02d}m"


def span(numbers: Iterable[int]) -> str:
    """Smallest and largest of some counts, once where they are equal."""
    low, high = min(kept := list(numbers)), max(kept)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def count(value: int | None) -> str:
    """A count with separated thousands."""
    return MISSING if value is None else f"{value:,}"


def plain(value: float | None) -> str:
    """A number with up to three decimals."""
    return MISSING if value is None else minus(f"{value:,.3f}".rstrip("0").rstrip("."))
