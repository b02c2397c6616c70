"""Who is in the cluster: discovery, failure detection, views and the agreement on them, split brain."""
