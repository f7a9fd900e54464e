"""The paper's figures, one file a data set, one style."""
