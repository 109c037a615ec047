"""One record a thing: backbones, encoders, paradigms, methods and experiments; imports nothing heavy."""
