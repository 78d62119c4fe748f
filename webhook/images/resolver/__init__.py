"""Image resolver: reads facts about images of a cluster from registries, and writes them as ImageCatalogs.

It is a program of its own. The webhook reads the facts from ConfigMaps, and never calls a registry.
"""
