"""Tests, mirroring the packages; plus arch/ (the house rules), sim/, bench/, e2e/ and fixtures/."""
