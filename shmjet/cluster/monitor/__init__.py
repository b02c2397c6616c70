"""Watching members from outside, on this host or over the network, without taking part."""
