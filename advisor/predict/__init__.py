"""Forecasts and policies by models in ONNX Runtime; damaged models are refused, rows outside their support are marked."""
