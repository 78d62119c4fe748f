"""Admission: HTTP endpoints, AdmissionReview, rule ConfigMaps, decision log."""
