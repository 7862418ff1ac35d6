"""The public names and signatures are those of tests/public_api.txt.

Whoever removes or changes a line breaks the programs of users and says so in CHANGELOG.md; a new
line is a promise. `python -m tests.public_api > tests/public_api.txt` writes the file.
"""

from tests import public_api
from tests.conftest import REPOSITORY


def test_public_names_and_signatures():
    promised = (REPOSITORY / "tests" / "public_api.txt").read_text(encoding="utf-8").splitlines()
    found = public_api.lines()
    assert not set(promised) - set(found), "removed or changed"
    assert not set(found) - set(promised), "new: python -m tests.public_api > tests/public_api.txt"
