"""Growth: what a message costs when there are many, and many topics, groups, producers and delays.

`lines` says what is varied, and does the work of one point. `points` does each in a process of its own. `page` draws
the results and writes the page. `python -m benchmarks.growth` is the command.
"""
