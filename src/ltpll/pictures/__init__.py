"""Photos: pictures turned into features by a pretrained network, in a stream that does not grow with their number."""
