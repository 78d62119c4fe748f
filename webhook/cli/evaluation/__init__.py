"""Evaluation of the objects of a cluster, as commands show it."""
