"""Node agent: labels and a diagnosis of a node's driver and GPUs, from NVML."""
