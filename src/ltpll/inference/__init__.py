"""Inference: how a trained network is asked for predictions."""
