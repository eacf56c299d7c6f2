"""Brokers on many machines that share a bucket.

`member` is the loop of a broker among others: it says that it lives, looks whether they do, claims and gives shards
(`cluster.claiming` decides); `wishes` answers for all of them what people ask; `running` is a server of this kind from
its start to its end.
"""
