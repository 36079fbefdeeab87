"""Convert: the files of labelling tools and detectors, as one kind of table."""
