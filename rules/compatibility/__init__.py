"""Compatibility of GPU requirements with nodes: checks, node evaluation, required affinity, report."""
