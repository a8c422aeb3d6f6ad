"""Fits the predictors with scikit-learn and publishes them as ONNX. Needs the extra `fit`; no cycle imports it."""
