"""An ELM fitted to a neuron of your own: `elm_lib.fit`, `elm_lib.load_fit`."""
