"""Prints the tokens of texts: their pieces, ids and positions in the text.

    bert-tf tokenize_text --vocab_file=vocab.txt --text="Hello worlds"
    bert-tf tokenize_text --model_dir=out/model --input_file=texts.txt --json

Positions are in characters (code points) and in UTF-8 bytes; ends are exclusive.
"""

# The file is not named tokenize.py, which would hide Python's module `tokenize` from all tools.

import itertools
import json

from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tools.common import tool
from bert_tf.tools.common.checkpoint_flags import new_tokenizer
from bert_tf.tools.common.checks import require_one
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    vocab_file (str): The vocabulary: a vocab.txt or a Hugging Face tokenizer.json.
    model_dir (str): The checkpoint directory with the tokenizer, instead of --vocab_file.
    text (repeated str): A text to tokenize.
    input_file (str): A UTF-8 file with one text per line, instead of --text; '-' is standard input.
    do_lower_case (bool, true): With a --vocab_file of WordPiece: whether to convert the text to
        lower case.
    keep_special_tokens (bool, false): Whether a special token in the text, such as [MASK], is one
        token; otherwise it is split.
    json (bool, false): Whether to print one JSON object per text instead of a table.
""")

TEXTS_AT_A_TIME = 256


def read_texts():
    """Returns the texts that the flags name."""
    require_one("text", "input_file")
    if FLAGS.text:
        return FLAGS.text
    path = "/dev/stdin" if FLAGS.input_file == "-" else FLAGS.input_file
    return (text for _, text in read_lines(path))


def make_tokenizer():
    """Creates the tokenizer of --vocab_file or --model_dir."""
    require_one("vocab_file", "model_dir")
    from bert_tf.text import BertTokenizer

    options = {"split_special_tokens": not FLAGS.keep_special_tokens}
    if FLAGS.model_dir:
        return BertTokenizer.from_pretrained(FLAGS.model_dir, **options)
    return new_tokenizer(**options)


def show(tokenizer, texts):
    """Prints the tokens of a batch of texts."""
    tokens = tokenizer.tokenize_with_offsets(texts)._asdict()
    fields = {name: value.to_list() for name, value in tokens.items()}
    for row, text in enumerate(texts):
        ids = fields["ids"][row]
        pieces = [tokenizer.vocabulary[token_id] for token_id in ids]
        chars = list(zip(fields["char_starts"][row], fields["char_ends"][row]))
        in_bytes = list(zip(fields["byte_starts"][row], fields["byte_ends"][row]))
        if FLAGS.json:
            offsets = {"char_offsets": chars, "byte_offsets": in_bytes}
            shown = {"text": text, "pieces": pieces, "ids": ids, **offsets}
            print(json.dumps(shown, ensure_ascii=False))
            continue
        print(f"{text!r}: {len(ids)} pieces")
        width = max(map(len, ["piece", *pieces]))
        print(f"  {'piece':<{width}}  {'id':>7}  {'characters':>13}  {'bytes':>13}  text")
        for piece, token_id, (start, end), (first, last) in zip(pieces, ids, chars, in_bytes):
            print(
                f"  {piece:<{width}}  {token_id:>7}  {f'{start}-{end}':>13}  "
                f"{f'{first}-{last}':>13}  {text[start:end]}"
            )


def main():
    tokenizer = make_tokenizer()
    texts = iter(read_texts())
    while batch := list(itertools.islice(texts, TEXTS_AT_A_TIME)):
        show(tokenizer, batch)


if __name__ == "__main__":
    tool.run(main)
