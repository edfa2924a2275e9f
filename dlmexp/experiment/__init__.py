"""From a config to records: planning, training and keeping the results of experiments.

Read `config`, `plan`, `running`, `records`, `cluster`, `models` in this order.
"""
