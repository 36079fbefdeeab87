"""`python -m ltpll_research` is the command line."""

from ltpll_research.cli import main

if __name__ == "__main__":
    main()
