"""The built-in demo model (`demo.gguf`) and the program that trains it."""
