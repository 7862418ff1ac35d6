"""Apache Beam pipelines for corpora that are larger than one machine.

They need Beam: `pip install 'bert-tf[beam]'`. Beam is imported by the modules of this package, not
by the package itself.
"""
