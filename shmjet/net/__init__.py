"""Floor 5: what travels between members — wire format, connections, the link process, receive windows.

It must not know what the items mean, nor who coordinates. A member of one host alone has no use for it and does not
start a link.
"""
