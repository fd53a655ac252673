"""Tests of agents/lending."""
