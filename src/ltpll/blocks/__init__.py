"""Building blocks shared by several methods and extras."""
