"""The lab: the claims of "Making Deep Learning Go Brrrr From First Principles" on the machine at hand.

One file an experiment. Each measures points through the product's own machine, work, timing and diagnose code, and
judges its claims by a pure function of those points.
"""
