"""Which tests `make check` runs."""

import os
import subprocess

import pytest

from tests.changed import changed_files, nearby_tests
from tests.conftest import REPOSITORY


def test_a_change_calls_for_the_tests_that_import_it():
    found = nearby_tests(REPOSITORY, ["bert_tf/tasks/question_answering/files.py"])
    names = list(found)
    assert names[0] == "tests/tasks/question_answering/test_files.py" and found[names[0]] == 0
    assert found["tests/tasks/question_answering/test_metrics.py"] == 1
    assert "tests/test_config.py" not in found


@pytest.mark.parametrize(
    "changed,expected",
    [
        ("tools/run_squad.py", "tests/tools/test_run_squad.py"),
        ("custom_ops/kernels/base/philox.h", "tests/ops/test_philox.py"),
        ("custom_ops/kernels/base/philox.h", "tests/conformance/test_ops.py"),
        ("docs/notebooks/chinese.ipynb", "tests/notebooks/test_notebooks.py"),
        (
            "bert_tf/tasks/text_classification/model.py",
            "tests/tasks/text_classification/test_model.py",
        ),
        ("tests/config.py", "tests/test_config.py"),
        ("tests/test_config.py", "tests/test_config.py"),
    ],
)
def test_nearest(changed, expected):
    assert nearby_tests(REPOSITORY, [changed])[expected] == 0


def test_changed_files_of_a_repository(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook's repository is another one

    def git(*arguments):
        user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", tmp_path, *user, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "kept.py").write_text("1")
    (tmp_path / "edited.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "edited.py").write_text("2")
    (tmp_path / "new ü.py").write_text("3")
    assert changed_files(tmp_path, "HEAD") == ["edited.py", "new ü.py"]
    with pytest.raises(ValueError, match="`--changed-since` must be .* 'nowhere'"):
        changed_files(tmp_path, "nowhere")
