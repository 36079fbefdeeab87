"""`python -m ltpll` is the command line."""

from ltpll.cli import main

if __name__ == "__main__":
    main()
