"""Prints how far calls of a classifier travel through the package, as JSON.

Each act runs eagerly, for the second time: counted are the files and functions of the package that
it enters, and the changes from one file to another. `python -m tests.way_of_a_call` prints them.
"""

import json
import os
import sys
import threading

MARKER = f"{os.sep}bert_tf{os.sep}"
TEXTS = ["a good film", "a bad film", "it rains", "the film is good"]
LABELS = ["good", "bad", "bad", "good"]
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "good",
    "bad",
    "film",
    "it",
    "rains",
    "the",
    "is",
]


def way(act):
    """Returns the numbers of files, functions and changes of file of a call without arguments."""
    act()  # what happens only once, such as building
    files, functions, changes, last = set(), set(), 0, None

    def enter(frame, event, _):
        nonlocal changes, last
        code = frame.f_code
        if event == "call" and MARKER in code.co_filename:
            files.add(code.co_filename)
            functions.add((code.co_filename, code.co_firstlineno))
            changes += code.co_filename != last
            last = code.co_filename

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {"files": len(files), "functions": len(functions), "changes_of_file": changes}


def main():
    import tensorflow as tf

    import bert_tf

    config = bert_tf.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    tokenizer = bert_tf.BertTokenizer(PIECES)
    backbone = bert_tf.BertBackbone(config)
    model = bert_tf.BertTextClassifier(backbone, labels=["bad", "good"], tokenizer=tokenizer)
    modules = sum(name.split(".")[0] == "bert_tf" for name in sys.modules)
    # Otherwise a second `fit` would run the step that the first one traced.
    model.compile(**model.default_compile(LABELS), run_eagerly=True)
    tf.config.run_functions_eagerly(True)
    tf.data.experimental.enable_debug_mode()
    tokens = tokenizer(tf.constant(TEXTS))
    acts = {
        "fit": lambda: model.fit(TEXTS, LABELS, batch_size=4, verbose=0),
        "predict": lambda: model.predict(TEXTS, verbose=0),
        "classify": lambda: model.classify(TEXTS),
        "backbone": lambda: model.backbone(tokens),
    }
    own = [base for base in type(model).__mro__[1:] if base.__module__.startswith("bert_tf")]
    found = {
        "walk": {name: way(act) for name, act in acts.items()},
        "ancestors_of_a_classifier": len(own),
        "modules_of_a_classifier": modules,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
