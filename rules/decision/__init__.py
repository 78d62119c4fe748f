"""The decision: policy, stages in their order, messages."""
