"""Brokers on many machines that share a bucket.

`place` opens the bucket as one of them; `member` is the loop of a broker among others: it says that it lives, looks
whether they do, claims and gives shards (`cluster.claiming` decides); `running` is a server of this kind from its start
to its end.
"""
