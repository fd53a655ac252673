"""Prediction: tables, histograms, the fleet's round, the peak predictor."""
