"""A server of several processes: a supervisor that starts, watches and replaces them, and deals shards out to them.

| | |
| --- | --- |
| `orders.py` | what supervisor and processes say to one another |
| `placing.py` | who is to have which shard, and what to do for it next. Pure |
| `children.py` | the processes as their parent knows them |
| `supervisor.py` | the parent: forks, watches, kills, stops |
| `member.py` | one process: does what it is told, and serves |
| `ports.py` | port numbers that all processes listen on |

Only the supervisor decides. A shard is open in one process at a time: each has a lock that the kernel lets go when its
process ends, whatever ends it.
"""
