"""Kubernetes semantics: pods, JSON Patch, quantities, names, image references, environment variables."""
