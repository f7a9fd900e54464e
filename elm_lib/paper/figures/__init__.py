"""The paper's figures: `style` is the one look, then one file a data set."""
