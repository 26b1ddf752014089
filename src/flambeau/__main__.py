"""`python -m flambeau COMMAND ...` is `flambeau COMMAND ...`."""

import sys

from flambeau.cli import main

if __name__ == "__main__":
    sys.exit(main())
