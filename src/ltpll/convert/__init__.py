"""Convert: the files of labelling tools, detectors and MATLAB, as one kind of table."""
