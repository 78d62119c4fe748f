"""What commands read: files, clusters, options."""
