"""What `python -m tools.evaluate` judges, one module per predictor."""
