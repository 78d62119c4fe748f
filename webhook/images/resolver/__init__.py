"""Image resolver: reads facts about images of a cluster from registries, and writes them as ImageCatalogs.

A program of its own. The gate reads what it writes from ConfigMaps, and never calls a registry.
"""
