"""Who may do what: bearer tokens with roles, checked in front of every path of a service."""
