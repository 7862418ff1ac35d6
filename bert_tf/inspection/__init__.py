"""What a model does with a text: attention, attributions, candidates, layers, heads, and a page."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BertLitModel": ".lit_model",
        "Inspection": ".inspection",
        "InspectionPage": ".page",
        "Projection": ".projections",
        "inspect_text": ".inspection",
        "project_pieces": ".projections",
        "project_texts": ".projections",
        "project_word": ".projections",
        "to_html": ".page",
        "write_projections": ".projections",
        "write_projector": ".projections",
    },
)
