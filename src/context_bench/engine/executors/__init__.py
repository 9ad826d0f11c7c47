"""Executors of the work of a run: in this process (`local`), or on the nodes of a Ray cluster (`ray_nodes`).

An executor does what it is handed and keeps nothing: the schedule, the plan, the limits, the money and the store stay
with the driver.
"""
