"""Inputs of commands: files, clusters, options."""
