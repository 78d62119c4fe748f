"""Input of commands: files, clusters, options."""
