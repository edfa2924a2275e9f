"""`python -m dlmexp`."""

import sys

from dlmexp.cli import main

sys.exit(main())
