"""One file a data set: its schema, how it is downloaded, generated, checked and batched."""
