"""What trainings recorded about themselves: read as far as it goes, or refused with the file's name and what to do."""

from pathlib import Path

import pytest

from polarvrp.errors import DataError
from polarvrp.study.metadata import recorded, require_recorded


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "does not exist; train it"),
        ("{", "is no metadata of a training; train it"),  # cut off
        ("[" * 100_000, "is no metadata of a training; train it"),  # deeper than a parser goes
        ('[["run", "mine"]]', "is no metadata of a training; train it"),  # pairs, which are no object
        ('{"run": "mine"}', "says no epochs; train it"),
    ],
)
def test_what_is_no_metadata_is_nothing_or_refused(tmp_path: Path, content: str | None, fault: str) -> None:
    path = tmp_path / "metadata.json"
    if content is not None:
        path.write_text(content)
    assert recorded(path) == ({"run": "mine"} if content == '{"run": "mine"}' else {})
    with pytest.raises(DataError) as refused:
        require_recorded(path, ("run", "epochs"), "train it")
    assert str(refused.value) == f"{path} {fault}"


def test_what_is_there_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_text('{"run": "mine", "epochs": 3}')
    assert require_recorded(path, ("run", "epochs"), "train it") == recorded(path) == {"run": "mine", "epochs": 3}
