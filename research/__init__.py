"""Programs that prepare data, train baselines and compare models: `python -m research.NAME`."""
