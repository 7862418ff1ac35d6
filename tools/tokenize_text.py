"""Shows what the tokenizer makes of text: pieces, ids, and where each piece stands in the text.

    python tools/tokenize_text.py --vocab_file=vocab.txt --text="Hello worlds"
    python tools/tokenize_text.py --model_dir=out/model --input_file=texts.txt --json

Offsets are in characters (code points) and in UTF-8 bytes; ends are exclusive. Named so because a
file `tokenize.py` beside the other tools would hide Python's own module of that name from them.
"""

import json
import sys

from absl import flags
from common.checkpoint_flags import new_tokenizer

from bert_tf import tool
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

flags.DEFINE_string("vocab_file", None, "A vocab.txt or a Hugging Face tokenizer.json.")
flags.DEFINE_string("model_dir", None, "A checkpoint directory; instead of --vocab_file.")
flags.DEFINE_multi_string("text", None, "A text; may be repeated.")
flags.DEFINE_string("input_file", None, "UTF-8 text, one a line; '-' is standard input.")
flags.DEFINE_bool("do_lower_case", True, "With --vocab_file: lower-case the text.")
flags.DEFINE_bool("keep_special_tokens", False, "Keep a [MASK] in the text whole.")
flags.DEFINE_bool("json", False, "Print one JSON object a text.")

TEXTS_AT_A_TIME = 256


def read_texts():
    """Yields the texts that the flags name."""
    if bool(FLAGS.text) == bool(FLAGS.input_file):
        raise UserError("Exactly one of --text and --input_file was expected.")
    if FLAGS.text:
        yield from FLAGS.text
        return
    if FLAGS.input_file == "-":
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(f"standard input, line {number}: expected UTF-8.") from error
        return
    from bert_tf.text.vocabulary_learning import read_lines

    yield from read_lines([FLAGS.input_file], progress=False)


def make_tokenizer():
    """The tokenizer that the flags ask for."""
    if bool(FLAGS.vocab_file) == bool(FLAGS.model_dir):
        raise UserError("Exactly one of --vocab_file and --model_dir was expected.")
    from bert_tf.text import BertTokenizer

    options = {"split_special_tokens": not FLAGS.keep_special_tokens}
    if FLAGS.model_dir:
        return BertTokenizer.from_pretrained(FLAGS.model_dir, **options)
    return new_tokenizer(**options)


def show(tokenizer, texts):
    """Prints the pieces of a batch of texts."""
    fields = {
        name: value.to_list()
        for name, value in tokenizer.tokenize_with_offsets(texts)._asdict().items()
    }
    for row, text in enumerate(texts):
        ids = fields["ids"][row]
        pieces = [tokenizer.vocabulary[token_id] for token_id in ids]
        chars = list(zip(fields["char_starts"][row], fields["char_ends"][row]))
        in_bytes = list(zip(fields["byte_starts"][row], fields["byte_ends"][row]))
        if FLAGS.json:
            print(
                json.dumps(
                    {
                        "text": text,
                        "pieces": pieces,
                        "ids": ids,
                        "char_offsets": chars,
                        "byte_offsets": in_bytes,
                    },
                    ensure_ascii=False,
                )
            )
            continue
        print(f"{text!r}: {len(ids)} pieces")
        width = max([len("piece")] + [len(piece) for piece in pieces])
        print(f"  {'piece':<{width}}  {'id':>7}  {'characters':>13}  {'bytes':>13}  text")
        for piece, token_id, (start, end), (first, last) in zip(pieces, ids, chars, in_bytes):
            print(
                f"  {piece:<{width}}  {token_id:>7}  {f'{start}-{end}':>13}  "
                f"{f'{first}-{last}':>13}  {text[start:end]}"
            )


def main():
    tokenizer = make_tokenizer()
    batch = []
    for text in read_texts():
        batch.append(text)
        if len(batch) == TEXTS_AT_A_TIME:
            show(tokenizer, batch)
            batch = []
    if batch:
        show(tokenizer, batch)


if __name__ == "__main__":
    tool.run(main)
