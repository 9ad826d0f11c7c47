"""The executor on the nodes of a Ray cluster, and what travels to them. The one of this process is `execution.Local`.

An executor does what it is handed and keeps nothing: the schedule, the plan, the limits, the money and the store stay
with the driver.
"""
