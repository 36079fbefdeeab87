"""Pictures: files decoded to arrays, or turned into features by a pretrained network."""
