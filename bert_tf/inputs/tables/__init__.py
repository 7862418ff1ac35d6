"""Tables of texts in files: tab-separated, CSV, JSON lines and Parquet."""
