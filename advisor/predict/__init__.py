"""Forecasts and policies served by ONNX Runtime; damaged models are refused, rows outside their support are marked."""
