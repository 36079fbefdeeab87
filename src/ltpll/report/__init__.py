"""Reports: tables and pages made from run records alone, without torch."""
