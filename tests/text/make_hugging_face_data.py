"""Writes `hugging_face_data.txt`, the character properties that Hugging Face's `tokenizers` uses.

    python -m tests.text.make_hugging_face_data > bert_tf/text/hugging_face_data.txt

Its parts are built with several Unicode versions, so each character is tried with each of them.
"""

import os
import tempfile

from bert_tf.text.unicode_tables import HANGUL_SYLLABLES, unicode_data
from research.make_unicode_data import NUM_CODE_POINTS, SURROGATES, ranges


def main() -> None:
    import sentencepiece
    import tokenizers
    from tokenizers import normalizers, pre_tokenizers

    from bert_tf.text.sentencepiece_model import read_model

    def normalization(name: str):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, name)
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(["a b c"]),
                model_prefix=path,
                normalization_rule_name=name,
                vocab_size=10,
                hard_vocab_limit=False,
                minloglevel=2,
            )
            charsmap = read_model(f"{path}.model")["charsmap"]
        return normalizers.Precompiled(charsmap).normalize_str

    # The first maps U+00A0 to a space, the second "A" to "a", and everything that is in one short
    # grapheme with them is removed. Only "A" leaves room for characters of 4 bytes.
    plain, fold = normalization("nmt_nfkc"), normalization("nmt_nfkc_cf")

    def extends(char: str) -> bool:
        normalize, before, after = (fold, "A", "a") if char > "\uffff" else (plain, "\xa0", " ")
        return normalize(before + char) == after and normalize(char) != ""

    decompose, compose = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    combining = unicode_data().properties["combining"]

    def is_unassigned(char: str) -> bool:
        """Whether unicode_data.txt knows more about it: its Unicode version is later."""
        is_mark = any(decompose(text) != text for text in ("\u0345" + char, char + "\u0334"))
        is_later = combining[ord(char)] > 0 and not is_mark
        is_later |= char in unicode_data().mappings["nfd"]
        return is_later and decompose(char) == char

    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    flags = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")

    def bert(flag: str):
        """One step of BERT's normalization."""
        return normalizers.BertNormalizer(**{name: name == flag for name in flags}).normalize_str

    clean, part, strip = map(bert, flags[:3])
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    print(f"# tokenizers {tokenizers.__version__}")
    print("# Made by tests/text/make_hugging_face_data.py; kind, first, last, values")
    predicates = {
        "letter": lambda char: len(split("a" + char)) == 1,
        "number": lambda char: len(split("1" + char)) == 1,
        "extend": extends,
        # In a longer grapheme, the mark after U+00A0 is not removed.
        "prepend": lambda char: plain(char + "\xa0\u0301").endswith("\u0301"),
        "unassigned": is_unassigned,
        "excluded": lambda char: len(decompose(char)) > 1 and compose(char) != char,
        "control": lambda char: clean(char) == "",
        "space": lambda char: clean(char) == " ",
        "mark": lambda char: strip(char) == "",
        "punctuation": lambda char: len(words(f"a{char}a")) == 3,
        "ideograph": lambda char: part(char) == f" {char} ",
    }
    for kind, predicate in predicates.items():
        for first, last, _ in ranges(predicate):
            print(f"{kind}\t{first:X}\t{last:X}")
    unaccented = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    for kind, mapping in {"lower": normalizers.Lowercase(), "unaccented": unaccented}.items():
        for code_point in range(NUM_CODE_POINTS):
            # Hangul syllables always decompose in the same way; see unicode_tables.py.
            if code_point not in SURROGATES and code_point not in HANGUL_SYLLABLES:
                target = mapping.normalize_str(char := chr(code_point))
                if target != char:
                    values = " ".join(f"{ord(char):X}" for char in target)
                    print(f"{kind}\t{code_point:X}\t{code_point:X}\t{values}")


if __name__ == "__main__":
    main()
