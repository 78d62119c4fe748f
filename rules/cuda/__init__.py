"""CUDA facts: versions, tables, NVIDIA_REQUIRE_*, framework flags, image catalogue, requirements."""
