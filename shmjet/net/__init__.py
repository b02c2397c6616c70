"""Floor 4: what travels between members — wire format, connections, the link process, receive windows.

It must not know what the items mean. A member of one host has no use for it, so there is nothing here before members
on several hosts are.
"""
