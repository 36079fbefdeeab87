"""Reports: HTML pages made from run records alone, without torch."""
