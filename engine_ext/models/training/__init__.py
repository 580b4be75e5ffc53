"""How the demo model is made: words and plots -> stories -> tokens -> network -> GGUF."""
