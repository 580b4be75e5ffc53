"""The HTTP server: llama-server's and OpenAI's API in front of `engine_ext`."""
