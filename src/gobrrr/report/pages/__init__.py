"""Pages, one a kind of result: a function from it to HTML."""
