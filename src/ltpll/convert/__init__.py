"""Convert: the files of labelling tools and SpeciesNet, as one kind of table."""
