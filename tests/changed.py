"""Which test files a change calls for, nearest first: `make check` runs them.

A test file is near a changed file when it is that file, tests it by name (tests/layers/test_crf.py
for bert_tf/layers/crf.py), or imports it; two imports away is farther than one.
"""

import ast
import functools
import pathlib
import re
import subprocess

from bert_tf import tasks

_TOOL_NAME = re.compile(r"[a-z]\w+")
_MODULE_NAME = re.compile(r"(bert_tf|benchmarks|research)(\.[a-z_0-9]+)+")
FAR = 3  # imports between a test and what changed: beyond it nothing is run
_CODE = ("bert_tf", "tools", "benchmarks", "research", "tests")
# A change of other files than Python's: the tests that read or run them.
_OTHER = {
    "custom_ops/": ("tests/ops/", "tests/conformance/test_ops.py"),
    "docs/": "tests/test_documents.py",
    "docs/notebooks/": "tests/notebooks/",
    "docs/run_notebooks.py": "tests/notebooks/",
    "README.md": "tests/test_documents.py",
    "CONTRIBUTING.md": "tests/tasks/test_new_task.py",
    "setup.py": "tests/test_packaging.py",
    "configure.py": "tests/test_packaging.py",
}


def changed_files(root: pathlib.Path, revision: str) -> list[str]:
    """The files that differ from `revision`, the ones that git does not know yet included.

    Raises:
        ValueError: If git knows no such revision.
    """

    def git(*arguments):
        command = ["git", "-C", str(root), *arguments]
        try:
            result = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise ValueError("`--changed-since` needs git. Received: no git on PATH") from None
        if result.returncode:
            raise ValueError(
                f"`--changed-since` must be a revision of this repository. Received: {revision!r} "
                f"({result.stderr.strip()})"
            )
        return result.stdout.split("\0")[:-1]

    different = git("diff", "--name-only", "-z", revision, "--")
    return sorted({*different, *git("ls-files", "--others", "--exclude-standard", "-z")})


def nearby_tests(root: pathlib.Path, changed: list[str]) -> dict[str, int]:
    """The test files that a change calls for.

    Args:
        root: The repository.
        changed: Paths in it.

    Returns:
        Path -> distance: 0 for a test that changed or has the changed file's name, else the number
        of imports between them, at most `FAR`.
    """
    names, imported_by = _importers(root)
    distances = {name: 0 for name in changed if name.endswith(".py")}
    ring = list(distances)
    for distance in range(1, FAR + 1):
        ring = [
            name
            for name in sorted({user for file in ring for user in imported_by.get(file, ())})
            if name not in distances and not name.endswith("__init__.py")
        ]
        distances.update(dict.fromkeys(ring, distance))
    found = {name: distance for name, distance in distances.items() if _is_test(name)}
    named = {_test_of(name) for name in changed if name.endswith(".py")}
    found.update({name: 0 for name in names if name in named})
    for prefix, tests in _OTHER.items():
        if any(name.startswith(prefix) for name in changed):
            found.update({name: 0 for name in names if _is_test(name) and name.startswith(tests)})
    folders = {pathlib.PurePath(name).parent.name for name in changed}

    def nearness(name):
        return found[name], pathlib.PurePath(name).parent.name not in folders, name

    return {name: found[name] for name in sorted(found, key=nearness)}


@functools.cache
def _importers(root: pathlib.Path) -> tuple[list[str], dict[str, set[str]]]:
    """The files of Python, and file -> the files that import it."""
    names, imported_by = [], {}
    for path in (path for folder in _CODE for path in sorted((root / folder).rglob("*.py"))):
        names.append(path.relative_to(root).as_posix())
        for module in _imports(path):
            for file in _files_of(root, module):
                imported_by.setdefault(file, set()).add(names[-1])
    return names, imported_by


def _test_of(name):
    """The path that the test of a file has by its name."""
    path = pathlib.PurePath(name)
    folder = pathlib.PurePath("tests", *path.parent.parts[path.parts[0] in ("bert_tf", "tests") :])
    return (folder / f"test_{path.name}").as_posix()


def _is_test(name):
    return name.startswith("tests/") and pathlib.PurePath(name).name.startswith("test_")


@functools.cache
def _imports(path: pathlib.Path) -> tuple[str, ...]:
    """The modules a file imports; the public names of `bert_tf` count as their modules."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                modules += [node.module, _home(path, node.module, alias.name)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Tests name the program that they run, hooks the module that they call.
            if _TOOL_NAME.fullmatch(node.value) or _MODULE_NAME.fullmatch(node.value):
                modules.append(node.value)
    if path.match("bert_tf/serving/export.py"):  # asks the specs
        modules += [s.serving_class().__module__ for s in tasks.specs() if s.serving]
    if path.match("bert_tf/checkpoints/opening.py"):
        modules += [type(spec.task_files()).__module__ for spec in tasks.specs() if spec.files]
    if path.match("tests/conformance/tasks.py"):
        modules += [f"tests.tasks.{name}.conformance" for name in tasks.NAMES]
    return tuple(dict.fromkeys(modules))


def _home(path, package, name):
    """The module of a name that a package has from a module, maybe by way of another package."""
    home = f"{package}.{name}"
    for _ in range(3):
        found = _public_names(path, package).get(name)
        if found is None or found == package:
            break
        home = package = found
    return home


def _public_names(path, package):
    """Name -> module, of the names that a package of ours takes from its modules."""
    if package == "bert_tf":
        models = {spec.model: spec.model_module for spec in tasks.specs()}
    else:
        models = {}
    root = next(folder for folder in path.parents if (folder / "bert_tf").is_dir())
    file = root / package.replace(".", "/") / "__init__.py"
    return {**models, **_names_in(file, package)} if file.is_file() else {}


@functools.cache
def _names_in(file, package):
    found = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update({alias.name: node.module for alias in node.names})
        elif isinstance(node, ast.Dict):  # what is imported when it is first used
            pairs = zip(node.keys, node.values)
            names = {
                key.value: str(value.value)
                for key, value in pairs
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
            }
            for name, module in names.items():
                if module.startswith((".", "bert_tf.")):
                    found[name] = package + module if module.startswith(".") else module
    return found


def _files_of(root, module):
    """A module's file; a tool's is found under its plain name too, by which tests start it."""
    path = module.removeprefix("bert_tf." if module.startswith("bert_tf.tools") else "")
    path = path.replace(".", "/")
    candidates = (f"{path}.py", f"{path}/__init__.py", f"tools/{path}.py")
    return [name for name in candidates if (root / name).is_file()]
