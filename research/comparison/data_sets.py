"""The data sets of the comparison, and the text that the encoders are pre-trained on."""

import dataclasses
import os
import random

from bert_tf.tools.common.result_files import write_text

from .runs import Run

ENGLISH, CHINESE = "english", "chinese"
# Drawn of each training file and each dev file; all would take most of the time.
SHORT_EXAMPLES = 1000
_VOCAB_SIZE = 8000


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A task with its files.

    Attributes:
        name: The name in the tables.
        language: Which encoders read it.
        score: The score of the tables, as the programs name it.
        labels: The labels in the order of their numbers; none for NER.
        searched: The name of the data set whose dev file chooses the learning rate; None for its
            own.
    """

    name: str
    language: str
    score: str
    labels: tuple[str, ...] = ()
    searched: str | None = None

    @property
    def is_ner(self) -> bool:
        return not self.labels

    @property
    def column(self) -> str:
        return f"{self.name.replace('_', ' ')}, {self.score}"


DATA_SETS = (
    DataSet("film_reviews", ENGLISH, "accuracy", ("fresh", "rotten"), "questions"),
    DataSet("questions", ENGLISH, "accuracy", ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")),
    DataSet("sms_spam", ENGLISH, "f1", ("ham", "spam"), "questions"),
    DataSet("chinese_reviews", CHINESE, "accuracy", ("neg", "pos")),
    DataSet("chinese_news", CHINESE, "f1"),
)


def searched_of(data: DataSet) -> DataSet:
    """Returns the data set whose dev file chooses the learning rate."""
    return next(one for one in DATA_SETS if one.name == (data.searched or data.name))


def directory_of(data: DataSet, work_dir: str) -> str:
    """Returns the directory of all examples."""
    return os.path.join(work_dir, "data", data.name)


def short_directory_of(data: DataSet, work_dir: str) -> str:
    """Returns the directory with some of the examples of train and dev, and all of test."""
    return os.path.join(work_dir, "data", data.name, "short")


def text_file(language: str, work_dir: str) -> str:
    return os.path.join(work_dir, "data", f"{language}.txt")


def vocabulary_file(language: str, materials: str, work_dir: str) -> str:
    if language == CHINESE:
        return os.path.join(materials, "chinese_vocab", "vocab.txt")
    return os.path.join(work_dir, "data", "english_vocab.txt")


def preparing_runs(materials: str, work_dir: str) -> list[Run]:
    """Returns the runs that make the files of the data sets."""
    runs = []
    for data in DATA_SETS:
        directory = directory_of(data, work_dir)
        if data.is_ner:
            news = os.path.join(materials, "chinese_text", "199801.txt")
            flags = {"input_file": news, "output_dir": directory}
            runs.append(Run("research.prepare_chinese_news", flags))
        else:
            flags = {"dataset": data.name, "materials_dir": materials, "output_dir": directory}
            runs.append(Run("research.prepare_classification_data", flags))
    ordered = os.path.join(work_dir, "data", "ordered_text")
    flags = {"input_dir": os.path.join(materials, "ordered_text"), "output_dir": ordered}
    flags["output_file"] = os.path.join(flags.pop("output_dir"), "text.txt")
    return [*runs, Run("research.prepare_ordered_text", flags)]


def vocabulary_run(work_dir: str) -> Run:
    """Returns the run that learns the English vocabulary from the text of the pre-training."""
    flags = {
        "input_file": text_file(ENGLISH, work_dir),
        "vocab_size": _VOCAB_SIZE,
        "output_file": vocabulary_file(ENGLISH, "", work_dir),
    }
    return Run("bert_tf.tools.build_vocab", flags)


def write_texts(work_dir: str) -> None:
    """Writes the text of each language: one sentence per line, an empty line after a document.

    English has the training texts of its data sets and the World English Bible; Chinese has the
    training texts of the news and of the reviews. No text of dev or test is in them.
    """
    english = []
    for data in DATA_SETS:
        if data.language == ENGLISH:
            path = os.path.join(directory_of(data, work_dir), "train.tsv")
            with open(path, encoding="utf-8") as file:
                english += [line.rpartition("\t")[0] + "\n\n" for line in file]
    paths = [os.path.join(work_dir, "data", "ordered_text", "text.txt")]
    write_text(text_file(ENGLISH, work_dir), [*english, *_texts(paths)])
    names = ("chinese_news/pretraining.txt", "chinese_reviews/pretraining_text.txt")
    paths = [os.path.join(work_dir, "data", name) for name in names]
    write_text(text_file(CHINESE, work_dir), _texts(paths))


def write_short_files(work_dir: str) -> None:
    """Draws `SHORT_EXAMPLES` of each train and dev file at random; copies test."""
    for data in DATA_SETS:
        ending, between = (".txt", "\n\n") if data.is_ner else (".tsv", "\n")
        for split in ("train", "dev", "test"):
            (text,) = _texts([os.path.join(directory_of(data, work_dir), split + ending)])
            examples = text.strip("\n").split(between)
            if split != "test" and len(examples) > SHORT_EXAMPLES:
                examples = random.Random(0).sample(examples, SHORT_EXAMPLES)
            path = os.path.join(short_directory_of(data, work_dir), split + ending)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_text(path, (example + between for example in examples))


def _texts(paths):
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    return texts
