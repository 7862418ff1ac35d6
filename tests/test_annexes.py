"""The annexes import public names of the core, and the core does not know them.

A public name is what a package's `__init__` lists in `__all__`. Of `config`, `errors` and the
modules of `base` every name without an underscore is public. docs/ARCHITECTURE.md lists the annexes
in one table: the room, its extra in setup.py, its tests and its page.
"""

import importlib
import re

import pytest

from bert_tf.base import optional_packages
from tests.conftest import REPOSITORY
from tests.test_import_directions import imports_of_package

_ROW = r"^\| `bert_tf/(\w+)/` \| `(\w+)` \| `(\S+)/` \| \[.*\]\((\S+)\) \|$"
_TABLE = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
ANNEXES = {room: rest for room, *rest in re.findall(_ROW, _TABLE, re.MULTILINE)}
# The page of an inspection may ask for more: it is served by what guards the server.
BUILT_ON = {"inspection": {"server"}}


def room_of(module: str) -> str:
    """The room that a module is in, or `bert_tf` itself."""
    return [*module.split("."), "bert_tf"][1]


def is_public(module: str, name: str | None) -> bool:
    if module in ("bert_tf.config", "bert_tf.errors") or room_of(module) == "base":
        return name is not None and not name.startswith("_")
    if name is None:
        return module == "bert_tf"
    return name in getattr(importlib.import_module(module), "__all__", ())


def imports_by_module():
    """The modules and names of this package that each module imports."""
    return {
        name: {(m, n) for m, n, _ in imports if m.split(".")[0] == "bert_tf"}
        for name, imports in imports_of_package().items()
        if room_of(name) != "tools"  # programs may use all
    }


def test_the_table_has_the_annexes():
    assert sorted(ANNEXES) == ["beam", "inspection", "search", "server", "sklearn"]


@pytest.mark.parametrize("room", ANNEXES)
def test_extra_tests_and_page_are_there(room):
    extra, tests, page = ANNEXES[room]
    assert extra in {extra for _, extra in optional_packages.PACKAGES.values()}
    assert list((REPOSITORY / tests).glob("test_*.py"))
    assert f"bert-tf[{extra}]" in (REPOSITORY / "docs" / page).read_text(encoding="utf-8")


def test_annexes_import_public_names_only():
    found = {
        f"{name}: from {module} import {imported}"
        for name, imports in imports_by_module().items()
        for module, imported in imports
        if room_of(name) in ANNEXES and room_of(module) != room_of(name)
        if not is_public(module, imported)
    }
    assert not found


def test_annexes_do_not_import_each_other():
    found = {}
    for name, imports in imports_by_module().items():
        rooms = {room_of(module) for module, _ in imports}
        others = (rooms & set(ANNEXES)) - {room_of(name)}
        if others:
            found[room_of(name)] = found.get(room_of(name), set()) | others
    assert found == BUILT_ON  # the core is not in it either
