"""`python -m substrat` is the daemon."""

import sys

from substrat.daemon.main import main

if __name__ == "__main__":
    sys.exit(main())
