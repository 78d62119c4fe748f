"""Nodes: label families, capabilities, label index, inventory, selectors, affinity."""
