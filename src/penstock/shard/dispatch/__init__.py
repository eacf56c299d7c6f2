"""Who gets which message when: indexes, groups in use, waiting consumers, alarms."""
