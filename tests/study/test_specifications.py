"""What finished runs depend on stays what it was: an edit of the code or the configuration retrains nothing."""

import json

from helpers.specifications import STORED, current_specifications


def test_specifications_of_all_runs_of_both_scales_equal_the_stored_list() -> None:
    """A difference means that everybody's results are computed again.

    If that is intended, bump a code version in ``study.specs``, tell it in the changelog, and write the list anew with
    ``python tests/helpers/specifications.py``.
    """
    stored, found = json.loads(STORED.read_text(encoding="utf-8")), current_specifications()
    assert found.keys() == stored.keys()
    assert {name: entry for name, entry in found.items() if entry != stored[name]} == {}
