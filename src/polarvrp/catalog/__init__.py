"""One record a thing: paradigms, encoders, backbones, methods, scales and experiments; imports nothing heavy.

Each registry is a dict from names to records in the order of tables. Records are looked up when they are used, so one
that is added to a registry counts everywhere at once.
"""
