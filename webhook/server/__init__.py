"""HTTPS server: connections, TLS, drain, limits. Independent of AdmissionReview."""
