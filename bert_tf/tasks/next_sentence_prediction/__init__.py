"""Next sentence prediction: does the second text follow the first?"""

from bert_tf.models.task_spec import CLASS_AXIS, TaskSpec, layer_head
from bert_tf.models.weight_rows import OUTPUT

_NAMES = ("cls.seq_relationship", "cls/seq_relationship", None, "next_sentence/out_proj")
HEAD = layer_head("next_sentence", OUTPUT, *_NAMES)
SPEC = TaskSpec(
    name="next_sentence_prediction",
    model="BertNextSentencePredictor",
    architectures=("BertForNextSentencePrediction",),
    heads={"next_sentence": HEAD},
    serving="NextSentencePredictionModule",
    output_axes=(CLASS_AXIS,),
)
