"""`gpugate facts`: which facts are in use, their differences, and their refresh from public documents."""
