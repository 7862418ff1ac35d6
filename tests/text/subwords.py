"""Subword tokenizers for tests: their files, and plain Python that computes the same."""

import json
import struct

from bert_tf.text import byte_characters

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def bpe_definition(merges, add_prefix_space=False, special=SPECIAL, **model):
    """A `tokenizer.json` of RoBERTa's form whose vocabulary has what the merges need."""
    pieces = [*special, *byte_characters()]
    pieces += [left + right for left, right in merges]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    flags = {"add_prefix_space": add_prefix_space, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [added(vocab, token, token == "<mask>") for token in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **flags, "use_regex": True},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", vocab["</s>"]],
            "cls": ["<s>", vocab["<s>"]],
            **flags,
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": [list(m) for m in merges], **model},
    }


def added(vocab, token, lstrip=False, normalized=False):
    return {
        "id": vocab[token],
        "content": token,
        "single_word": False,
        "lstrip": lstrip,
        "rstrip": False,
        "normalized": normalized,
        "special": True,
    }


def unigram_definition(pieces, split_at_white_space=False, normalizer=None, special=SPECIAL):
    """A `tokenizer.json` of XLM-RoBERTa's form."""
    vocab = [[token, 0.0] for token in special[:4]] + [list(piece) for piece in pieces]
    vocab.append([special[4], 0.0])
    ids = {piece: index for index, (piece, _) in enumerate(vocab)}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    if split_at_white_space:
        space = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}

    def item(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}

    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    cls, sep = item("<s>"), item("</s>")
    described = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("<s>", "</s>")}
    return {
        "version": "1.0",
        "added_tokens": [added(ids, token, token == special[4]) for token in special],
        "normalizer": normalizer,
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, sep, second, sep],
            "special_tokens": described,
        },
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False},
    }


def gemma_definition(merges, characters="", others=(), **model):
    """A `tokenizer.json` of Gemma's form: pairs of characters, and bytes of what is no piece."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *characters]
    pieces += ["".join(merge) for merge in merges]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    for piece in others:  # added tokens that are not special, such as runs of line ends
        vocab.setdefault(piece, len(vocab))
    tokens = [added(vocab, token) for token in special]
    tokens += [added(vocab, token) | {"special": False} for token in others]

    def item(kind, name, second=0):
        return {kind: {"id": name, "type_id": second}}

    single = [item("SpecialToken", "<bos>"), item("Sequence", "A"), item("SpecialToken", "<eos>")]
    second = [item("Sequence", "B", 1), item("SpecialToken", "<eos>", 1)]
    described = {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in ("<bos>", "<eos>")}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]
    steps += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    return {
        "version": "1.0",
        "added_tokens": sorted(tokens, key=lambda token: token["id"]),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": split | {"invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single + second,
            "special_tokens": described,
        },
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(merge) for merge in merges],
            **model,
        },
    }


def hugging_face(definition):
    """The tokenizer of Hugging Face for a definition."""
    import tokenizers

    return tokenizers.Tokenizer.from_str(json.dumps(definition))


def assert_same(texts, received, expected):
    different = [i for i in range(len(texts)) if list(received[i]) != list(expected[i])]
    assert not different, (
        f"{len(different)} of {len(texts)} differ, first {texts[different[0]]!a}: "
        f"received {received[different[0]]}, expected {expected[different[0]]}"
    )


def merged(word, merges):
    """Byte-pair encoding of a word, one merge at a time."""
    ranks = {tuple(merge): rank for rank, merge in enumerate(merges)}
    symbols = [byte_characters()[byte] for byte in word.encode()]
    while True:
        pairs = list(zip(symbols, symbols[1:]))
        rank, place = min(
            ((ranks.get(p, len(ranks)), i) for i, p in enumerate(pairs)), default=(1, 0)
        )
        if rank >= len(ranks) or not pairs:
            return symbols
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


def most_probable(word, scores):
    """The pieces of a word; None for an unknown character. The first of equally good ways."""
    unknown = min(scores.values()) - 10.0
    best = [(0.0, 0, None)]
    for end in range(1, len(word) + 1):
        ways = []
        for start in range(end):
            piece = word[start:end]
            if piece in scores:
                ways.append((best[start][0] + scores[piece], start, piece))
            elif end == start + 1:
                ways.append((best[start][0] + unknown, start, None))
        best.append(max(ways, key=lambda way: way[0]))
    pieces, end = [], len(word)
    while end:
        _, end, piece = best[end]
        if piece is not None or not pieces or pieces[-1] is not None:
            pieces.append(piece)
    return pieces[::-1]


def charsmap(rules):
    """The `precompiled_charsmap` of rules: a double array of darts-clone, and their results."""
    texts, values = b"", {}
    for key, value in rules.items():
        values[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    trie = {}
    for key, value in values.items():
        node = trie
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, used, pending, free = {0: 0}, {0}, [(0, trie)], 256
    while pending:
        place, node = pending.pop()
        offset, free = free, free + 256  # a block of units for each node: simple and large
        units[place] |= (place ^ offset) << 10 | (256 if 0 in node else 0)
        for byte, child in node.items():
            if byte == 0:
                units[offset] = child | 1 << 31
            else:
                units[offset ^ byte] = byte
                pending.append((offset ^ byte, child))
        used |= {offset ^ byte for byte in node}
    array = [units.get(place, 0x800000FF if place else 0) for place in range(free)]
    return struct.pack("<I", 4 * len(array)) + struct.pack(f"<{len(array)}I", *array) + texts


def sentencepiece_model(pieces, rules=None, model_type=1, unk_id=0, **flags):
    """The content of a sentencepiece model; `pieces` are `(text, score, type)`.

    A field that is None is left out. `flags` are those of the normalizer and the trainer.
    """

    def varint(value):
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def message(number, content):
        return varint(number << 3 | 2) + varint(len(content)) + content

    def integer(number, value):
        return b"" if value is None else varint(number << 3) + varint(value)

    content = b""
    for text, score, kind in pieces:
        piece = b"" if text is None else message(1, text.encode())
        piece += b"" if score is None else b"\x15" + struct.pack("<f", score)
        content += message(1, piece + integer(3, kind))
    trainer = integer(3, model_type) + integer(40, unk_id)
    trainer += integer(24, flags.get("treat_whitespace_as_suffix"))
    normalizer = message(2, charsmap(rules) if rules else b"")
    normalizer += integer(3, flags.get("add_dummy_prefix"))
    normalizer += integer(5, flags.get("escape_whitespaces"))
    return content + message(2, trainer) + message(3, normalizer)
