"""Studies: small experiments that run on any machine, each a list of runs and what is made of their records."""
