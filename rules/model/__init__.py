"""The nouns: rules, matches, requests, decisions. Frozen values."""
