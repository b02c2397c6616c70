"""Monitoring of members from outside, on this host or over the network."""
