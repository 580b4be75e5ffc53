"""`unpaced chat`: a conversation in the terminal."""
