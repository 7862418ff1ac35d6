"""What the tests of planning share."""

import sys

from tests.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools"))
