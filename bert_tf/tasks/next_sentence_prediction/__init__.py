"""Next sentence prediction: does the second text follow the first?"""

from bert_tf.models.task_spec import CLASS_AXIS, Head, TaskSpec
from bert_tf.models.weight_rows import OUTPUT, Row

HEAD = Head(
    "next_sentence",
    (
        Row(
            OUTPUT,
            "",
            "cls.seq_relationship",
            "cls/seq_relationship",
            None,
            "next_sentence/out_proj",
        ),
    ),
)
SPEC = TaskSpec(
    name="next_sentence_prediction",
    model="BertNextSentencePredictor",
    architectures=("BertForNextSentencePrediction",),
    heads={"next_sentence": HEAD},
    serving="NextSentencePredictionModule",
    output_axes=(CLASS_AXIS,),
)
