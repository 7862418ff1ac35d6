"""What pip makes of this tree, with and without Bazel, and what configure.py writes.

A script stands in for Bazel: the real build is `make ops`, which every other test of the ops needs.
"""

import configparser
import json
import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tensorflow as tf

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import configure  # noqa: E402

FAKE_BAZEL = """#!/bin/sh
here="$(dirname "$0")"
echo "$*" >> "$here/calls"
case "$1" in
  build)
    [ -z "$FAKE_BAZEL_FAILS" ] || { echo "a compiler's message" >&2; exit 1; }
    mkdir -p "$here/bin/custom_ops/ops" "$here/bin/custom_ops/xla"
    echo object > "$here/bin/custom_ops/ops/_bert_tf_ops.so"
    echo '{"tensorflow_version": "2.21.0"}' > "$here/bin/custom_ops/ops/_build_info.json"
    echo lowerings > "$here/bin/custom_ops/xla/_bert_tf_xla.so"
    echo '{}' > "$here/bin/custom_ops/xla/_xla_build_info.json"
    case "$2" in --config=cuda)
      [ -x "$CUDA_HOME/bin/nvcc" ] || { echo "no nvcc in '$CUDA_HOME'" >&2; exit 1; }
      echo kernels > "$here/bin/custom_ops/ops/_bert_tf_gpu_ops.so"
      echo '{"nvcc": "13.0"}' > "$here/bin/custom_ops/ops/_gpu_build_info.json"
      echo "lowerings for it" > "$here/bin/custom_ops/xla/_bert_tf_gpu_xla.so"
      echo '{}' > "$here/bin/custom_ops/xla/_gpu_xla_build_info.json"
    esac
    ;;
  info) echo "$here/bin" ;;
esac
"""
OPS = {"bert_tf/ops/_bert_tf_ops.so", "bert_tf/ops/_build_info.json"}
XLA = {"bert_tf/ops/_bert_tf_xla.so", "bert_tf/ops/_xla_build_info.json"}
GPU = {"bert_tf/ops/_bert_tf_gpu_ops.so", "bert_tf/ops/_gpu_build_info.json"}
GPU_XLA = {"bert_tf/ops/_bert_tf_gpu_xla.so", "bert_tf/ops/_gpu_xla_build_info.json"}
BUILT = OPS | XLA | GPU | GPU_XLA


@pytest.fixture
def tree(tmp_path):
    """A copy of what setup.py reads, with an object of an earlier `make ops` in it."""
    tree = tmp_path / "tree"
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "bert_tf", tree / "bert_tf", ignore=no_caches)
    for name in ("setup.py", "pyproject.toml", "configure.py", "MANIFEST.in", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    (tree / "README.md").write_text("# bert_tf\n", encoding="utf-8")
    for name in BUILT:
        (tree / name).write_text("stale", encoding="utf-8")
    return tree


@pytest.fixture
def fake_bazel(tmp_path):
    """The folder of a script that behaves as Bazel where it succeeds, and writes its calls down."""
    folder = tmp_path / "fake_bazel"
    folder.mkdir()
    script = folder / "bazel"
    script.write_text(FAKE_BAZEL, encoding="utf-8")
    script.chmod(0o755)
    return folder


def environment(*path, **more):
    """This environment with PATH made of what every shell script needs, and of `path` first."""
    left_out = ("BERT_TF_BUILD_OPS", "CUDA_HOME")
    inherited = {key: value for key, value in os.environ.items() if key not in left_out}
    return {**inherited, "PATH": os.pathsep.join(map(str, path)), **more}


@pytest.fixture
def plain_tools(tmp_path):
    """A folder for PATH that has a shell's tools and no Bazel."""
    folder = tmp_path / "plain_tools"
    folder.mkdir()
    for name in ("sh", "mkdir", "dirname", "uname"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


@pytest.fixture
def cuda_home(tmp_path):
    """A folder that looks like a CUDA toolkit."""
    home = tmp_path / "cuda"
    for name in ("bin/nvcc", "lib64/libcudart_static.a"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch(mode=0o755)
    return home


def run_pip(tree, env, command="wheel", *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pip", command, "--no-build-isolation", "--no-deps", *arguments],
        cwd=tree,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def build_wheel(tree, env):
    result = run_pip(tree, env, "wheel", "--wheel-dir", str(tree / "dist"), ".")
    assert result.returncode == 0, result.stdout
    (wheel,) = (tree / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return wheel.name, files


def test_a_wheel_without_bazel_is_pure_and_has_no_object(tree, plain_tools):
    name, files = build_wheel(tree, environment(plain_tools))
    assert name == "bert_tf-0.1.0-py3-none-any.whl"
    assert not BUILT & set(files)
    assert "bert_tf/ops/native.py" in files and "bert_tf/text/unicode_data.txt" in files
    assert "bert_tf/serving/server/page.html" in files
    assert not [file for file in files if file.startswith(("tests/", "tools/", "configure"))]
    assert "bert_tf-0.1.0.dist-info" in {file.split("/")[0] for file in files}


def test_a_wheel_with_bazel_has_the_object_and_the_platform(tree, plain_tools, fake_bazel):
    name, files = build_wheel(tree, environment(fake_bazel, plain_tools))
    assert name.startswith("bert_tf-0.1.0-py3-none-linux_")
    assert files["bert_tf/ops/_bert_tf_ops.so"] == b"object\n"
    assert json.loads(files["bert_tf/ops/_build_info.json"]) == {"tensorflow_version": "2.21.0"}
    built = OPS | XLA if configure.has_xla_headers() else OPS
    assert BUILT & set(files) == built
    calls = (fake_bazel / "calls").read_text(encoding="utf-8")
    assert "//custom_ops/ops:_bert_tf_ops.so" in calls
    assert ("//custom_ops/xla:_bert_tf_xla.so" in calls) == (built >= XLA)
    assert "--config=cuda" not in calls
    assert f"--repo_env=BERT_TF_PYTHON={sys.executable} " in calls
    assert f"--repo_env=BERT_TF_TENSORFLOW_VERSION={tf.__version__} " in calls
    # The next wheel of the same tree, without Bazel, must not pick the object up again.
    shutil.rmtree(tree / "dist")
    name, files = build_wheel(tree, environment(plain_tools))
    assert name.endswith("py3-none-any.whl") and not BUILT & set(files)


def test_a_wheel_with_cuda_home_has_the_gpu_kernels(tree, plain_tools, fake_bazel, cuda_home):
    env = environment(fake_bazel, plain_tools, CUDA_HOME=str(cuda_home))
    name, files = build_wheel(tree, env)
    assert name.startswith("bert_tf-0.1.0-py3-none-linux_")
    assert files["bert_tf/ops/_bert_tf_ops.so"] == b"object\n"
    assert files["bert_tf/ops/_bert_tf_gpu_ops.so"] == b"kernels\n"
    assert json.loads(files["bert_tf/ops/_gpu_build_info.json"]) == {"nvcc": "13.0"}
    assert (set(files) >= GPU_XLA) == configure.has_xla_headers()
    calls = (fake_bazel / "calls").read_text(encoding="utf-8").splitlines()
    # What is built with another environment is built again: so the GPU's targets go alone.
    (cuda_call,) = [call for call in calls if "--config=cuda" in call]
    assert "//custom_ops/ops:_bert_tf_gpu_ops.so" in cuda_call
    assert ("//custom_ops/xla:_bert_tf_gpu_xla.so" in cuda_call) == configure.has_xla_headers()
    assert "//custom_ops/ops:_bert_tf_ops.so" not in cuda_call


def test_a_cuda_home_without_nvcc_is_told(tree, plain_tools, fake_bazel, cuda_home):
    (cuda_home / "bin/nvcc").unlink()
    env = environment(fake_bazel, plain_tools, CUDA_HOME=str(cuda_home))
    result = run_pip(tree, env, "wheel", ".")
    assert result.returncode != 0
    assert f"Received: CUDA_HOME={str(cuda_home)!r}. Unset it" in result.stdout
    result = subprocess.run(
        [sys.executable, str(ROOT / "configure.py")], env=env, capture_output=True, text=True
    )
    assert result.returncode == 1 and "Unset it" in result.stderr


def test_an_editable_install_builds_in_place(tree, plain_tools, fake_bazel, tmp_path):
    result = run_pip(
        tree,
        environment(fake_bazel, plain_tools),
        "install",
        "--target",
        str(tmp_path / "site"),
        "--editable",
        ".",
    )
    assert result.returncode == 0, result.stdout
    assert (tree / "bert_tf/ops/_bert_tf_ops.so").read_text(encoding="utf-8") == "object\n"


def test_a_failed_build_says_how_to_go_on(tree, plain_tools, fake_bazel):
    env = environment(fake_bazel, plain_tools, FAKE_BAZEL_FAILS="1")
    result = run_pip(tree, env, "wheel", ".")
    assert result.returncode != 0
    assert "a compiler's message" in result.stdout
    assert "BERT_TF_BUILD_OPS=0 installs without them" in result.stdout


@pytest.mark.parametrize(
    "choice, said", [("1", "Expected Bazel on PATH"), ("yes", "Received: BERT_TF_BUILD_OPS='yes'")]
)
def test_a_choice_that_cannot_be_honoured(tree, plain_tools, choice, said):
    result = run_pip(tree, environment(plain_tools, BERT_TF_BUILD_OPS=choice), "wheel", ".")
    assert result.returncode != 0 and said in result.stdout


def test_the_metadata(tree, plain_tools):
    _, files = build_wheel(tree, environment(plain_tools))
    metadata = Parser().parsestr(files["bert_tf-0.1.0.dist-info/METADATA"].decode("utf-8"))
    assert metadata["Name"] == "bert-tf" and metadata["Requires-Python"] == ">=3.10"
    required = metadata.get_all("Requires-Dist")
    for package in ("tensorflow", "tensorflow-text"):
        assert f"{package}<2.22,>=2.19" in required
    extras = {"test", "full", "evaluate", "tagging", "benchmark", "tpu", "onnx", "serve", "serving"}
    assert set(metadata.get_all("Provides-Extra")) == extras
    # Every op must run on the TensorFlow that an isolated build takes its headers from.
    pyproject = configparser.ConfigParser()
    pyproject.read(ROOT / "pyproject.toml", encoding="utf-8")
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
