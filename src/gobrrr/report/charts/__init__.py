"""Charts as Vega-Lite specs: plain dicts, valid for version 5, so that a page, a notebook and a picture draw the same.

A spec names no colour but through `config`, which belongs to a theme; regimes have their place in its category range.
"""
