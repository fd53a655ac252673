"""Admission: what pods become, which may come in, and whether their quota and their gang let them.

A mutating and a validating webhook around pure rules; started by `slackwater admission run`.
"""
