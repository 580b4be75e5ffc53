"""What every part of the engine needs: its errors, the native module and which build it is."""
