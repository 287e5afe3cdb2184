"""Where gobrrr meets programs that know nothing of it."""
