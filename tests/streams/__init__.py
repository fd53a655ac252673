"""Tests of streams/: delivery, images, the command line, the development broker."""
