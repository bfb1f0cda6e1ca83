"""`python -m looptaps` is the command line."""

from looptaps.cli.main import main

main()
