"""How long did it take, and where? The step timed undisturbed, its timeline, and the user's objects put back."""
