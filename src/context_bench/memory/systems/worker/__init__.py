"""The program that a vendor's Python runs, in a folder of its own: the folder of a program comes first where Python
looks for modules.
"""
