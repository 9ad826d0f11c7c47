"""The store of runs, outputs, scores, calls and bodies. The only part of the engine that does I/O."""
