"""`gpugate whatif`."""
