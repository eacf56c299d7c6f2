"""Answers about a broker: pages of topics and groups, messages and traces found, figures, statistics.

Nothing here changes anything, and nothing of the broker needs it. How far a group is, is `penstock.delivery.standing`.
"""
