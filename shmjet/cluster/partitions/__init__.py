"""Where partitions lie: the table of their replicas, and the least moves after members come and go. Pure."""
