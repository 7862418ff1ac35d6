"""What every task computes on MiniLM, recorded so that two versions of the code can be compared.

    python -m tests.golden_outputs record before.npz
    …                                      # in another checkout, on the same machine
    python -m tests.golden_outputs record after.npz
    python -m tests.golden_outputs compare before.npz after.npz

Recorded are the outputs of each task model, its answers, the outputs of each signature of its
SavedModel, and the losses and weights of a 50-step training run. A change that must not change
numbers leaves every array the same, bit for bit; `compare` names those that differ.
"""

import argparse
import hashlib
import pathlib
import sys
import tempfile

import numpy as np

from tests.conftest import MATERIALS

TEXTS = [
    "A man is eating food.",
    "Two dogs run across a wet field, chasing a ball.",
    "Für Élise was found in 1867, 40 years after Beethoven’s death.",
    "",
    "今天天气很好。",
]
QUESTIONS = ["What is he eating?", "Where do they run?", "When was it found?", "What?", "好？"]
CHOICES = [[question, "Nothing."] for question in QUESTIONS]
MASKED = ["[MASK] is the capital of France.", "A [MASK] is [MASK] food."]
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
STEPS, BATCH = 50, 8


class Recorder:
    """Arrays by name, and the models that they come from."""

    def __init__(self, directory: pathlib.Path):
        self.arrays = {}
        self._directory = directory

    def add(self, name: str, values) -> None:
        """Adds arrays, nests of them, or anything with an exact `repr`."""
        import tensorflow as tf

        if isinstance(values, dict):
            for key, value in values.items():
                self.add(f"{name}/{key}", value)
        elif tf.is_tensor(values) or isinstance(values, np.ndarray):
            array = np.asarray(values)
            self.arrays[name] = np.array(repr(array.tolist())) if array.dtype == object else array
        else:
            self.arrays[name] = np.array(repr(values))

    def exported(self, name: str, model, **options) -> None:
        """Adds what each signature of the SavedModel gives for texts."""
        import tensorflow as tf

        from bert_tf.serving import export

        path = export(model, self._directory / name, **options)
        loaded = tf.saved_model.load(path)
        served = loaded.signatures["serving_default"]
        columns = {"text": TEXTS, "pair": QUESTIONS, "question": QUESTIONS, "context": TEXTS}
        columns |= {"prompt": TEXTS, "choices": CHOICES, "first": TEXTS, "second": QUESTIONS}
        if name == "masked_lm":
            columns["text"] = MASKED
        names = served.structured_input_signature[1]
        inputs = {key: tf.constant(columns[key]) for key in names}
        self.add(f"{name}/serving_default", served(**inputs))
        tokens = model.tokenizer(TEXTS, max_length=64)
        if name == "multiple_choice":
            tokens = {key: values[:, tf.newaxis] for key, values in tokens.items()}  # [B, 1, T]
        self.add(f"{name}/tokens", loaded.signatures["tokens"](**tokens))


def record(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """All arrays by name; SavedModels are written into `directory`."""
    import keras

    import bert_tf

    minilm = MATERIALS / "minilm"
    recorder = Recorder(directory)

    def model(kind, **options):
        keras.utils.set_random_seed(1)  # the heads' first weights
        if kind is not bert_tf.BertPretrainer:
            options["max_length"] = 64
        made = kind.from_pretrained(minilm, **options)
        made.untrained_heads = ()
        return made

    classifier = model(bert_tf.BertTextClassifier, labels=["bad", "good"])
    recorder.add("text_classification/logits", classifier.predict(TEXTS, verbose=0))
    pairs = (TEXTS, QUESTIONS)
    recorder.add("text_classification/pair_logits", classifier.predict(pairs, verbose=0))
    recorder.exported("text_classification", classifier)
    recorder.exported("pair_classification", classifier, pairs=True)
    classifier.quantize("int8")
    recorder.add("text_classification/int8", classifier.predict(TEXTS, verbose=0))

    token_classifier = model(bert_tf.BertTokenClassifier, labels=TAGS)
    recorder.add("token_classification/spans", token_classifier.tag(TEXTS))
    recorder.add("token_classification/logits", token_classifier(token_classifier.tokenize(TEXTS)))
    recorder.exported("token_classification", token_classifier)

    question_answerer = model(bert_tf.BertQuestionAnswerer, doc_stride=8, max_query_length=16)
    recorder.add("question_answering/answers", question_answerer.answer(QUESTIONS, TEXTS))
    recorder.add(
        "question_answering/logits", question_answerer(question_answerer.tokenize(QUESTIONS, TEXTS))
    )
    recorder.exported("question_answering", question_answerer)

    multiple_choice = model(bert_tf.BertMultipleChoice)
    recorder.add("multiple_choice/logits", multiple_choice.predict((TEXTS, CHOICES), verbose=0))
    recorder.exported("multiple_choice", multiple_choice)

    filler = model(bert_tf.BertMaskedLM)
    recorder.add("masked_lm/candidates", filler.fill_mask(MASKED))
    recorder.exported("masked_lm", filler)

    follower = model(bert_tf.BertNextSentencePredictor)
    recorder.add("next_sentence/logits", follower.predict(pairs, verbose=0))
    recorder.exported("next_sentence", follower)

    encoder = model(bert_tf.BertSentenceEncoder)
    recorder.add("sentence_embedding/vectors", encoder.encode(TEXTS))
    recorder.exported("sentence_embedding", encoder)

    extractor = model(bert_tf.BertFeatureExtractor)
    recorder.add("feature_extraction/states", extractor(extractor.tokenize(TEXTS)))

    pretrainer = model(bert_tf.BertPretrainer)
    tokens = {name: values.numpy() for name, values in filler.tokenize(TEXTS).items()}
    tokens["masked_positions"] = np.tile(np.array([[1, 2]], np.int32), [len(TEXTS), 1])
    recorder.add("pretraining/outputs", pretrainer(tokens))

    classifier = model(bert_tf.BertTextClassifier, labels=["bad", "good"])
    schedule = bert_tf.training.WarmupLinearDecay(1e-4, STEPS, STEPS // 10)
    classifier.compile(bert_tf.training.AdamWeightDecay(schedule))
    texts = [f"{TEXTS[row % 3]} {QUESTIONS[row % 4]} {row}" for row in range(STEPS * BATCH)]
    labels = [("bad", "good")[row % 3 % 2] for row in range(STEPS * BATCH)]
    losses = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: losses.append(logs["loss"])
    )
    options = {"batch_size": BATCH, "verbose": 0, "callbacks": [callback]}
    classifier.fit(texts, labels, shuffle=False, **options)  # with dropout
    recorder.add("training/losses", np.array(losses))
    for number, variable in enumerate(classifier.weights):
        digest = hashlib.sha256(np.ascontiguousarray(variable.numpy()).tobytes()).hexdigest()
        recorder.add(f"training/weights/{number}", digest)
    return recorder.arrays


def compare(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> list[str]:
    """The names of arrays that only one has, or that differ in a bit, a shape or a dtype."""

    def is_same(name):
        one, other = before.get(name), after.get(name)
        if one is None or other is None or one.dtype.kind != other.dtype.kind:
            return False
        if one.dtype.kind == "U":
            return np.array_equal(one, other)
        same_kind = one.dtype == other.dtype and one.shape == other.shape
        return same_kind and one.tobytes() == other.tobytes()

    return [name for name in sorted({*before, *after}) if not is_same(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("file", type=pathlib.Path)
    both = commands.add_parser("compare")
    both.add_argument("before", type=pathlib.Path)
    both.add_argument("after", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        with tempfile.TemporaryDirectory() as directory:
            arrays = record(pathlib.Path(directory))
        np.savez_compressed(arguments.file, **arrays)
        print(f"{len(arrays)} arrays in {arguments.file}")
        return
    with np.load(arguments.before) as before, np.load(arguments.after) as after:
        different = compare(dict(before), dict(after))
        print(f"{len({*before, *after})} arrays, {len(different)} differ")
    for name in different:
        print(name)
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
