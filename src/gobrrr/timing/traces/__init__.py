"""Somebody's recorded trace, read into columns and taken apart. No torch here."""
