"""The biophysical neuron that generates NeuronIO: morphology, channels, cable equation, inputs."""
