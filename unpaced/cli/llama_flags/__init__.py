"""llama-server's flags that set nothing here: what is said about each."""
