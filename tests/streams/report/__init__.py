"""Tests of `slackwater report`: its figures, its words, and the page in a real browser."""
