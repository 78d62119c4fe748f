"""What gpugate reads of a cluster."""
