"""Live and recorded traffic: `watch`, `replay` and `doctor`."""
