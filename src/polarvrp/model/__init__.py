"""Networks: parts, the registry that composes backbones and encoders from them, saving and loading."""
