"""Container images: their manifests and configs, from registries, OCI layouts and archives."""
