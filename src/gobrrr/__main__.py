"""`python -m gobrrr`, where no script was installed."""

from gobrrr.cli import main

main()
