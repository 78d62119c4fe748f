"""Lint: checks of single rules and of rule sets."""
