"""Live and recorded traffic: `watch`, `replay` and `doctor`."""

#: The key of the bill's figures in a result and in JSON.
BILL = "bill"
