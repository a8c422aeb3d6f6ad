"""Fits the predictors with scikit-learn and publishes them as ONNX; extra `fit`, never imported by a cycle."""
