"""Text primitives: languages, display width, globs, locations, YAML and JSON documents, bounded caches."""
