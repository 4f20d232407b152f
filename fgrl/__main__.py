"""`python -m fgrl` is `fgrl`."""

from fgrl.cli import main

if __name__ == "__main__":
    main()
