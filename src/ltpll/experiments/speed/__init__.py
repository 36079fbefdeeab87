"""Speed measurements behind `ltpll bench`."""
