"""Sources and sinks for the maps and lists of a Hazelcast cluster elsewhere, by the official Python client."""
