"""Next sentence prediction: does the second text follow the first?"""

from bert_tf.models.task_spec import CLASS_AXIS, Examples, Serving, TaskSpec, layer_head
from bert_tf.models.weight_rows import OUTPUT

_NAMES = ("cls.seq_relationship", "cls/seq_relationship", None, "next_sentence/out_proj")
HEAD = layer_head("next_sentence", OUTPUT, *_NAMES)
SPEC = TaskSpec(
    name="next_sentence_prediction",
    model="BertNextSentencePredictor",
    architectures=("BertForNextSentencePrediction",),
    preprocessor="NextSentencePreprocessor",
    examples=Examples(texts=(2,)),
    heads={"next_sentence": HEAD},
    serving=Serving(
        "preprocessor.NextSentencePredictionModule",
        texts={"text": "The first text, UTF-8.", "pair": "The text that may follow it, UTF-8."},
        outputs={
            "probability": "The probability that the second text follows the first.",
            "logits": "Logits of following and of not following, before softmax.",
        },
    ),
    output_axes=(CLASS_AXIS,),
)
