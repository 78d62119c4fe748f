"""HTTPS server: connections, TLS, drain, limits. Knows nothing of AdmissionReview."""
