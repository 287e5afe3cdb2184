"""Views of plain data, one file each. Nothing here measures, and nothing here imports torch."""
