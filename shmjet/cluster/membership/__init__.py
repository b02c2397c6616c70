"""Membership of a cluster: discovery, failure detection, views and the agreement on them, split brain."""
