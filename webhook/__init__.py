"""The outside: HTTP, AdmissionReview, command line, metrics and logs."""
