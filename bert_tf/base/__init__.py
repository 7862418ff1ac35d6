"""What is about no model: files and JSON, progress, optional packages, names of Keras."""
