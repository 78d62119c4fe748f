"""Unit tests of rules."""
