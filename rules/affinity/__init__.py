"""Node affinity: from what containers require to the terms of a pod."""
