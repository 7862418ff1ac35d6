"""What a model does with a text: attention, attributions, candidates, layers, heads, and a page."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Inspection": ".inspection",
        "InspectionPage": ".page",
        "inspect_text": ".inspection",
        "to_html": ".page",
    },
)
