"""The tables of properties in docs/verification.md are those of the tests that exist."""

import pytest

from tests.conftest import REPOSITORY
from tests.properties import PROPERTIES, collected, table


@pytest.mark.full
def test_the_tables_are_what_pytest_collects():
    page = (REPOSITORY / "docs" / "verification.md").read_text(encoding="utf-8")
    usual, every = collected(), collected("-m", "")
    for kind in PROPERTIES:
        lines = table(kind, usual, every)
        assert len(lines) > 20
        assert "\n".join(lines) in page
