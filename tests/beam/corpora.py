"""Small random corpora, in every format, and what the local tool makes of them."""

import json
import random

from bert_tf import BertTokenizer
from bert_tf.tasks.pretraining.create_data import create_pretraining_data
from bert_tf.tasks.pretraining.document_chunks import scan_documents
from bert_tf.tasks.pretraining.examples import ExampleOptions

WORDS = [f"word{n}" for n in range(50)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]
OPTIONS = ExampleOptions(max_seq_length=32, max_predictions_per_seq=5)
CHUNK_BYTES = 700


def random_documents(number, seed=0):
    """Documents of sentences; some are long enough to be split."""
    rng = random.Random(seed)
    return [
        [
            " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8)))
            for _ in range(rng.choice([1, 3, 8, 60]))
        ]
        for _ in range(number)
    ]


def as_text(documents):
    return "".join("".join(f"{line}\n" for line in document) + "\n" for document in documents)


def as_wiki(documents):
    return "".join(
        f'<doc id="{n}" url="https://x/{n}" title="T">\n' + "\n\n".join(document) + "\n\n</doc>\n"
        for n, document in enumerate(documents)
    )


def as_json(documents):
    return "".join(json.dumps({"id": 1, "text": "\n".join(d)}) + "\n" for d in documents)


def local_outputs(paths, directory, num_files=2, dupe_factor=2, seed=3):
    """The bytes of the files that the local tool makes."""
    outputs = [directory / f"local-{n}.tfrecord" for n in range(num_files)]
    corpus = scan_documents(paths, CHUNK_BYTES, progress=False)
    work = {"dupe_factor": dupe_factor, "random_seed": seed, "progress": False}
    create_pretraining_data(corpus, outputs, BertTokenizer(VOCABULARY), OPTIONS, **work)
    return [path.read_bytes() for path in outputs]
