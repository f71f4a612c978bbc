"""Who sees whom, lowered to flat integers (`plan`), and the backends that compute attention over it.

`reference` is the specification: eager and readable. Imports only `core`.
"""
