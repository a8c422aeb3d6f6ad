"""Arrays to forecasts: models served by ONNX Runtime, refused when damaged, flagged when they do not know."""
