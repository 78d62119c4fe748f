"""Rule files: one document model and builder per rule kind, loader, errors, JSON Schema."""
