"""Small models to examine, made for it."""
