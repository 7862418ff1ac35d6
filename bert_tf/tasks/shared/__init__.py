"""What several tasks have in common, and the specs of those that write text."""

from bert_tf.models.task_spec import Examples, Serving

# A source and a target. Batches of several lengths are no array.
SOURCE_AND_TARGET = Examples(texts=(2,), are_predicted_in_datasets=False)
GENERATED_TEXT = Serving(
    "bert_tf.tasks.shared.text_generator.GeneratedTextModule",
    outputs={"generated_text": "What the model writes."},
    token_outputs={
        "token_ids": "Ids of its pieces: without the start token, with the end token, then padding."
    },
)
