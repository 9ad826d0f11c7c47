"""For people who test things that stand between a client and a model: loopback proxies with habits, a hostile provider,
contracts.
"""
