"""Learns a Unigram vocabulary from raw text with sentencepiece.

The tokenizer has ALBERT's form: its special tokens, and its normalization before sentencepiece's.

References: Kudo, arXiv 1804.10959; Lan et al., arXiv 1909.11942; google/sentencepiece
`doc/options.md`.
"""

import io
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator

from bert_tf.base.json_files import write_json
from bert_tf.base.optional_packages import require_package
from bert_tf.base.progress import progress_bar
from bert_tf.errors import DataError, require, user_error
from bert_tf.text import subword_files, tokenizer_config
from bert_tf.text.subword_tokenizer import SubwordTokenizer
from bert_tf.text.unigram import Normalized, steps
from bert_tf.text.vocabulary_learning import TEXTS_AT_A_TIME

_PACKAGE = "sentencepiece"
_MODEL_FILE = "spiece.model"  # ALBERT's
_LONGEST_TEXT = 2**30  # in bytes; sentencepiece leaves longer texts out, by default those of 4,192


def learn_unigram(
    texts: Iterable[str],
    vocabulary_size: int,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    num_unused: int = 0,
    character_coverage: float = 0.9995,
    progress: bool = True,
) -> SubwordTokenizer:
    """Learns a Unigram model from raw text.

    The package sentencepiece learns it, and holds all texts in memory. Its pieces may be parts of
    words or, in scripts without spaces, several words.

    Args:
        texts: The texts, for example sentences.
        vocabulary_size: The maximum number of pieces.
        lowercase: Whether to lower-case text, also in the tokenizer.
        strip_accents: Whether to remove accents. None means `lowercase`.
        num_unused: The number of `[unusedN]` pieces, to be replaced by new words later.
        character_coverage: The share of the characters of the texts that must be pieces. Rarer
            characters are `<unk>`.
        progress: Whether to show a progress bar.

    Returns:
        The tokenizer. Its first pieces are `<pad>`, `<unk>`, `[CLS]`, `[SEP]` and `[MASK]`.

    Raises:
        UserError: If sentencepiece is not installed.
        ConfigError: If an option has an invalid value.
        DataError: If the texts have too few words, or more characters than `vocabulary_size`.

    Example:
        >>> texts = ["low lower lowest slow slowly"] * 9
        >>> tokenizer = bert_tf.text.learn_unigram(texts, vocabulary_size=20, progress=False)
        >>> tokenizer.vocabulary[:5]
        ['<pad>', '<unk>', '[CLS]', '[SEP]', '[MASK]']
        >>> tokenizer.readable_pieces()[tokenizer.tokenize("Slow").numpy()[0]]
        '▁slow'
    """
    sentencepiece = require_package(_PACKAGE, "learning a Unigram vocabulary")
    require(num_unused >= 0, "must be at least 0", num_unused=num_unused)
    require(vocabulary_size >= 1, "must be at least 1", vocabulary_size=vocabulary_size)
    rule = "must be above 0 and at most 1"
    require(0 < character_coverage <= 1, rule, character_coverage=character_coverage)
    keep_accents = not (lowercase if strip_accents is None else strip_accents)
    options = {"do_lower_case": lowercase, "keep_accents": keep_accents}
    sentences = _Normalized(texts, options, progress)
    model = io.BytesIO()
    pad, unk, *special = subword_files.ALBERT_TOKENS
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            max_sentence_length=_LONGEST_TEXT,
            pad_id=0,
            pad_piece=pad,
            unk_id=1,
            unk_piece=unk,
            bos_id=-1,
            eos_id=-1,
            control_symbols=[*special, *(f"[unused{index}]" for index in range(num_unused))],
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if sentences.error is not None:
            raise sentences.error from None
        expected = f"be enough for a vocabulary of vocabulary_size={vocabulary_size}"
        reason = str(error).rpartition("] ")[2] or "no text"
        raise user_error("The texts", expected, reason, DataError) from None
    if sentences.error is not None:
        raise sentences.error
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, _MODEL_FILE), "wb") as file:
            file.write(model.getvalue())
        write_json(os.path.join(directory, tokenizer_config.CONFIG_FILE), options)
        return SubwordTokenizer(subword_files.read_definition(directory))


class _Normalized:
    """Normalized texts. An error of their iterator ends them, since C++ code reads them."""

    def __init__(self, texts: Iterable[str], options: dict[str, bool], progress: bool):
        self._texts, self._progress = iter(texts), progress
        normalizers = subword_files.albert_normalizers(options)
        self._normalize = Normalized(steps({"type": "Sequence", "normalizers": normalizers}))
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        shown = {"unit": " texts", "unit_scale": True, "disable": not self._progress}
        with progress_bar(None, "reading texts", **shown) as bar:
            try:
                while batch := list(itertools.islice(self._texts, TEXTS_AT_A_TIME)):
                    yield from self._normalize(batch)
                    bar.update(len(batch))
            except Exception as error:
                self.error = error
