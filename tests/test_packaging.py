"""What pip makes of this tree, with and without Bazel, and what configure.py writes.

A script replaces Bazel: the real build is `make ops`, which every other test of the ops needs.
pip builds two wheels; what needs none runs setup.py alone, and in the full suite pip again.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tensorflow as tf

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import configure  # noqa: E402
from bert_tf.base import optional_packages  # noqa: E402
from bert_tf.tools.common import programs  # noqa: E402
from tests.tools.running import run_program  # noqa: E402

FAKE_BAZEL = """#!/bin/sh
here="$(dirname "$0")"
echo "$*" >> "$here/calls"
case "$1" in
  build)
    [ -z "$FAKE_BAZEL_FAILS" ] || { echo "a compiler's message" >&2; exit 1; }
    mkdir -p "$here/bin/custom_ops/ops" "$here/bin/custom_ops/xla" "$here/bin/custom_ops/kernels"
    echo kernels > "$here/bin/custom_ops/kernels/_bert_tf_kernels.so"
    echo object > "$here/bin/custom_ops/ops/_bert_tf_ops.so"
    echo '{"tensorflow_version": "2.21.0"}' > "$here/bin/custom_ops/ops/_build_info.json"
    echo lowerings > "$here/bin/custom_ops/xla/_bert_tf_xla.so"
    echo "object for a GPU" > "$here/bin/custom_ops/ops/_bert_tf_gpu_ops.so"
    echo "lowerings for it" > "$here/bin/custom_ops/xla/_bert_tf_gpu_xla.so"
    ;;
  info) echo "$here/bin" ;;
esac
"""
FOLDER = f"bert_tf/ops/tensorflow_{tf.__version__.rsplit('.', 1)[0]}"
KERNELS = "bert_tf/ops/_bert_tf_kernels.so"
OPS = {KERNELS} | {
    f"{FOLDER}/{name}" for name in ("_bert_tf_ops.so", "_bert_tf_gpu_ops.so", "_build_info.json")
}
XLA = {f"{FOLDER}/_bert_tf_xla.so", f"{FOLDER}/_bert_tf_gpu_xla.so"}
OTHER = "bert_tf/ops/tensorflow_2.18/_bert_tf_ops.so"
BUILT = OPS | XLA | {OTHER}


def copy_tree(folder):
    """A copy of what setup.py reads, with an object of an earlier `make ops` in it."""
    tree = folder / "tree"
    no_caches = shutil.ignore_patterns("__pycache__", "*.so", "tensorflow_2.*")
    shutil.copytree(ROOT / "bert_tf", tree / "bert_tf", ignore=no_caches)
    for name in ("setup.py", "pyproject.toml", "configure.py", "MANIFEST.in", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    (tree / "third_party").mkdir()
    shutil.copy(ROOT / "third_party" / "NOTICE.md", tree / "third_party")
    (tree / "README.md").write_text("# bert_tf\n", encoding="utf-8")
    (tree / "custom_ops").mkdir()
    for name in ("build.py", "foreign_tensorflow.py"):
        shutil.copy(ROOT / "custom_ops" / name, tree / "custom_ops")
    for name in BUILT:
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("stale", encoding="utf-8")
    return tree


def make_fake_bazel(folder):
    """The folder of a script that behaves as Bazel where it succeeds, and writes its calls down."""
    folder = folder / "fake_bazel"
    folder.mkdir()
    script = folder / "bazel"
    script.write_text(FAKE_BAZEL, encoding="utf-8")
    script.chmod(0o755)
    return folder


def make_plain_tools(folder):
    """A folder for PATH that has a shell's tools and no Bazel."""
    folder = folder / "plain_tools"
    folder.mkdir()
    for name in ("sh", "mkdir", "dirname", "uname"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


@pytest.fixture
def tree(tmp_path):
    return copy_tree(tmp_path)


@pytest.fixture
def fake_bazel(tmp_path):
    return make_fake_bazel(tmp_path)


@pytest.fixture
def plain_tools(tmp_path):
    return make_plain_tools(tmp_path)


def environment(*path, **more):
    """This environment with PATH made of what every shell script needs, and of `path` first."""
    inherited = {key: value for key, value in os.environ.items() if key != "BERT_TF_BUILD_OPS"}
    return {**inherited, "PATH": os.pathsep.join(map(str, path)), **more}


def run(env, *arguments, cwd=ROOT):
    """Python with these arguments, both outputs together."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return run_program(*arguments, cwd=cwd, env=env, capture_output=False, **options)


def run_pip(tree, env, command, *arguments):
    options = ("--no-build-isolation", "--no-deps")
    return run(env, "-m", "pip", command, *options, *arguments, cwd=tree)


def run_setup(tree, env, command, *arguments):
    """What pip would have setup.py do, without pip."""
    return run(env, "setup.py", command, *arguments, cwd=tree)


def build_wheel(tree, env):
    wheel = build_wheel_file(tree, env)
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    shutil.rmtree(tree / "dist")
    return wheel.name, files


def build_wheel_file(tree, env):
    result = run_pip(tree, env, "wheel", "--wheel-dir", str(tree / "dist"), ".")
    assert result.returncode == 0, result.stdout
    (wheel,) = (tree / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Of one tree: the name and files of a wheel with Bazel, then without it; Bazel's calls."""
    folder = tmp_path_factory.mktemp("wheels")
    tree, fake_bazel, plain_tools = (
        make(folder) for make in (copy_tree, make_fake_bazel, make_plain_tools)
    )
    with_bazel = build_wheel(tree, environment(fake_bazel, plain_tools))
    calls = (fake_bazel / "calls").read_text(encoding="utf-8")
    return with_bazel, build_wheel(tree, environment(plain_tools)), calls


def test_a_wheel_without_bazel_is_pure_and_has_no_object(wheels):
    _, (name, files), _ = wheels
    assert name == "bert_tf-0.1.0-py3-none-any.whl"
    # Neither that of `make ops` nor that of the wheel before, of the same tree.
    assert not BUILT & set(files)
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "bert_tf").rglob("*.py")}
    assert modules <= set(files) and "bert_tf/text/unicode_data.txt" in files
    assert "bert_tf/server/page.html" in files
    page = {path.name for path in (ROOT / "bert_tf" / "inspection" / "page_files").iterdir()}
    assert {f"bert_tf/inspection/page_files/{name}" for name in page} <= set(files)
    assert {"page.html", "page.css", "main.js"} <= page
    assert {file.split("/")[0] for file in files} == {"bert_tf", "bert_tf-0.1.0.dist-info"}


def test_a_wheel_has_the_licences_of_others(wheels):
    _, (_, files), _ = wheels
    notice = files["bert_tf-0.1.0.dist-info/licenses/third_party/NOTICE.md"].decode("utf-8")
    assert "bert_tf-0.1.0.dist-info/licenses/LICENSE" in files
    headings = " ".join(re.findall("(?m)^## (.+): ", notice)).lower()
    repository = (ROOT / "third_party/tensorflow_repository.bzl").read_text("utf-8")
    lists = re.findall(r"_HEADER_FOLDERS = \[(.*?)\]", repository, re.DOTALL)
    folders = re.findall('"(.+)"', "".join(lists))
    names = {
        "absl": "abseil",
        "google": "protocol buffers",
        "xla": "tensorflow",
        "tsl": "tensorflow",
    }
    for folder in folders:  # whose headers are compiled into the ops
        first = re.sub("^(external|unsupported)/", "", folder).split("/")[0]
        assert names.get(first, first.removesuffix("_archive")).lower() in headings, folder
    data = [path.name for path in (ROOT / "bert_tf").rglob("*_data.txt")]
    assert data and all(name in notice for name in data)


@pytest.mark.full
def test_a_wheel_is_the_same_bytes_again(tmp_path, plain_tools):
    """The second build has another folder, other dates and modes of files, and another umask."""
    made = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        tree = copy_tree(tmp_path / str(number))
        for path in tree.rglob("*") if number else ():
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.utime(path, (10**9, 10**9))
        env = environment(
            plain_tools, SOURCE_DATE_EPOCH="1700000000", BERT_TF_BUILD_OPS="bert_tf/ops"
        )
        before = os.umask(0o077 if number else 0o022)
        try:
            made.append(build_wheel_file(tree, env).read_bytes())
        finally:
            os.umask(before)
    assert made[0] == made[1]


def test_the_sbom(tmp_path):
    """What bert_tf requires, with versions and licences, and what is in its wheel."""
    program = str(ROOT / "third_party/sbom.py")
    for name in ("a", "b"):
        result = run(
            {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, program, str(tmp_path / name)
        )
        assert result.returncode == 0, result.stdout
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    bill = json.loads((tmp_path / "a").read_text("utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["timestamp"]) == (
        "CycloneDX",
        "2023-11-14T22:13:20Z",
    )
    found = {one["name"]: one for one in bill["components"]}
    assert found["tensorflow"]["version"] == tf.__version__
    assert found["pip"]["scope"] == "excluded" and found["pytest"]["scope"] == "optional"
    required = {name for name, one in found.items() if one["scope"] == "required"}
    assert required >= {"tensorflow", "keras", "numpy", "protobuf", "safetensors", "tqdm", "h5py"}
    assert "pytest" not in required and "bert-tf" not in found
    assert all(one["licenses"] and one["purl"].startswith("pkg:pypi/") for one in found.values())
    inside = {one["name"] for one in bill["metadata"]["component"]["components"]}
    assert inside >= {"Eigen", "Abseil", "Unicode Character Database"}
    refs = {one["bom-ref"] for one in (*bill["components"], bill["metadata"]["component"])}
    used = {ref for one in bill["dependencies"] for ref in (one["ref"], *one["dependsOn"])}
    assert used <= refs


def test_a_wheel_has_the_command_and_the_programs(wheels, tmp_path, is_full):
    """They start from another folder than the checkout."""
    _, (_, files), _ = wheels
    installed = {file for file in files if file.startswith("bert_tf/tools/")}
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tools").rglob("*.py")}
    assert installed == {f"bert_tf/{path}" for path in expected}
    entry = files["bert_tf-0.1.0.dist-info/entry_points.txt"].decode("utf-8")
    assert "bert-tf = bert_tf.tools.common.command:main" in entry

    for name, content in files.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    listing = run(env, "-m", "bert_tf", "--help", cwd=tmp_path).stdout
    assert all(f"\n  {name} " in listing for name in programs.NAMES)
    shown = run(env, "-m", "bert_tf", "run_classifier", "--help", cwd=tmp_path)
    assert shown.returncode == 0 and "\n  --lora_rank=INTEGER\n" in shown.stdout
    if is_full:  # it imports TensorFlow
        (tmp_path / "text").write_text("a good film .\n" * 4, encoding="utf-8")
        options = ("--input_file=text", "--output_file=vocab.txt", "--vocab_size=40")
        made = run(env, "-m", "bert_tf", "build-vocab", *options, cwd=tmp_path)
        assert made.returncode == 0 and "vocabulary: vocab.txt" in made.stdout, made.stdout


def test_a_wheel_with_bazel_has_the_object_and_the_platform(wheels):
    (name, files), _, calls = wheels
    assert name.startswith("bert_tf-0.1.0-py3-none-linux_")
    assert files[f"{FOLDER}/_bert_tf_ops.so"] == b"object\n"
    assert json.loads(files[f"{FOLDER}/_build_info.json"]) == {"tensorflow_version": "2.21.0"}
    built = OPS | XLA if configure.has_xla_headers() else OPS
    assert BUILT & set(files) == built
    assert "//custom_ops/ops:_bert_tf_ops.so" in calls
    assert ("//custom_ops/xla:_bert_tf_xla.so" in calls) == (built >= XLA)
    assert "//custom_ops/ops:_bert_tf_gpu_ops.so" in calls  # which needs no nvcc
    assert f"--repo_env=BERT_TF_PYTHON={sys.executable} " in calls
    assert f"--repo_env=BERT_TF_TENSORFLOW_VERSION={tf.__version__} " in calls


def test_a_wheel_of_what_was_built_has_the_objects_of_every_tensorflow(tree, plain_tools):
    """Without Bazel; this is how `make wheel` makes one wheel for several versions."""
    env = environment(plain_tools, BERT_TF_BUILD_OPS="bert_tf/ops")
    result = run_setup(tree, env, "build_py", "--build-lib", "lib")
    assert result.returncode == 0, result.stdout
    paths = {
        path for path in (tree / "lib/bert_tf/ops").rglob("*") if path.suffix in (".so", ".json")
    }
    assert {str(path.relative_to(tree / "lib")) for path in paths} == BUILT
    for name in BUILT:
        (tree / name).unlink()
    result = run_setup(tree, env, "build_py", "--build-lib", "lib")
    assert result.returncode != 0 and "custom_ops/build.py has built" in result.stdout


def test_a_build_for_this_machine_leaves_out_what_it_does_not_run(tree, plain_tools, fake_bazel):
    def build():
        env = environment(fake_bazel, plain_tools)
        result = run(env, "custom_ops/build.py", "bert_tf/ops", "--for_this_machine", cwd=tree)
        assert result.returncode == 0, result.stdout
        calls = (fake_bazel / "calls").read_text(encoding="utf-8").splitlines()
        return [call for call in calls if call.startswith("build")][-1]

    # What has everything stays complete.
    call = build()
    assert "--define=isa" not in call
    assert ("//custom_ops/xla:_bert_tf_xla.so" in call) == configure.has_xla_headers()
    for name in XLA:
        (tree / name).unlink(missing_ok=True)
    call = build()
    assert f"--define=isa={configure.best_instruction_set()} " in call
    assert "//custom_ops/ops:_bert_tf_ops.so" in call and "//custom_ops/xla" not in call
    present = {str(path.relative_to(tree)) for path in (tree / FOLDER).iterdir()}
    assert present == OPS - {KERNELS}


@pytest.fixture
def failed_build(tree, is_full):
    """Fails to build the tree and returns what was said: by setup.py, in the full suite by pip."""

    def build(env):
        arguments = ("wheel", ".") if is_full else ("build_py", "--build-lib", "lib")
        result = (run_pip if is_full else run_setup)(tree, env, *arguments)
        assert result.returncode != 0
        return result.stdout

    return build


def test_an_editable_install_builds_in_place(tree, plain_tools, fake_bazel, tmp_path, is_full):
    """In the full suite by pip."""
    env = environment(fake_bazel, plain_tools)
    site = str(tmp_path / "site")
    if is_full:
        result = run_pip(tree, env, "install", "--target", site, "--editable", ".")
    else:
        result = run_setup(tree, env, "editable_wheel", "--dist-dir", site)
    assert result.returncode == 0, result.stdout
    assert (tree / FOLDER / "_bert_tf_ops.so").read_text(encoding="utf-8") == "object\n"


def test_a_failed_build_says_how_to_go_on(failed_build, plain_tools, fake_bazel):
    said = failed_build(environment(fake_bazel, plain_tools, FAKE_BAZEL_FAILS="1"))
    assert "a compiler's message" in said
    assert "BERT_TF_BUILD_OPS=0 installs without them" in said


@pytest.mark.parametrize(
    "choice, said", [("1", "Expected Bazel on PATH"), ("yes", "Received: BERT_TF_BUILD_OPS='yes'")]
)
def test_a_choice_that_cannot_be_honoured(failed_build, plain_tools, choice, said):
    assert said in failed_build(environment(plain_tools, BERT_TF_BUILD_OPS=choice))


def test_the_metadata(wheels):
    _, (_, files), _ = wheels
    metadata = Parser().parsestr(files["bert_tf-0.1.0.dist-info/METADATA"].decode("utf-8"))
    assert metadata["Name"] == "bert-tf" and metadata["Requires-Python"] == ">=3.10"
    required = metadata.get_all("Requires-Dist")
    assert "tensorflow<2.22,>=2.19" in required
    assert 'tensorflow-text<2.22,>=2.19; platform_system != "Windows"' in required
    plain = {re.split(r"[<>=~ ]", line)[0] for line in required if "extra ==" not in line}
    assert plain == {
        *("tensorflow", "tensorflow-text", "keras"),
        *("absl-py", "numpy", "protobuf", "safetensors", "tqdm"),
    }
    for_work = {extra for _, extra in optional_packages.PACKAGES.values()}
    for_this_project = {"test", "full", "benchmark", "notebooks"}
    for_devices = {"gpu", "tpu"}
    assert set(metadata.get_all("Provides-Extra")) == for_work | for_this_project | for_devices
    # The extra that an error names installs the package; docs/installation.md lists it.
    table = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    for package, extra in optional_packages.PACKAGES.values():
        assert any(re.match(rf"{package}\b.*extra == .{extra}.$", line) for line in required)
        assert re.search(rf"^\| `{extra}` \| .*\b{package}\b", table, re.MULTILINE)
    # Every op must run on the TensorFlow that an isolated build takes its headers from.
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "tensorflow>=2.19,<2.22" in pyproject["build-system"]["requires"]


def test_configure_writes_once_and_again_when_something_changes(tmp_path, monkeypatch):
    path = tmp_path / ".bazelrc.user"
    assert configure.write_bazelrc_user(path)
    text = path.read_text(encoding="utf-8")
    assert f"build --repo_env=BERT_TF_PYTHON={sys.executable}\n" in text
    assert not configure.write_bazelrc_user(path)
    monkeypatch.setattr(sys, "executable", "/a folder/python")
    assert configure.write_bazelrc_user(path)
    assert 'build "--repo_env=BERT_TF_PYTHON=/a folder/python"\n' in path.read_text("utf-8")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_configure_without_tensorflow_says_what_to_do(monkeypatch):
    monkeypatch.setattr(configure.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="Expected an interpreter with TensorFlow.*make venv"):
        configure.bazel_flags()


def test_configure_finds_the_running_tensorflow():
    version, folder = configure.find_tensorflow()
    assert version == tf.__version__
    assert folder == Path(tf.__file__).resolve().parent
