"""`gpugate export`."""
