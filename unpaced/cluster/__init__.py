"""Several machines: the application as replicas of Ray Serve."""
