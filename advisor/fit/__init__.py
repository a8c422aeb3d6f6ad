"""Fitting the predictors with scikit-learn and publishing them as ONNX; the extra `fit`, never imported by a cycle."""
