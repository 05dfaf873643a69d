"""Your own graph: what `sta train` does with two tables, beside what an analyst would use instead.

    python -m experiments own                                  what is missing, and the page
    python -m experiments own --graph twitch-es --labels 10    some of it
    python -m experiments own --render                         only the page, from the records

Graphs come as tables, with a column that says which nodes are for training: 60 % of them (20 % for
validation) or 10 % (another 10 %). Five such columns each. Every model is fitted on the same
tables and the same columns, on a CPU; whatever a model chooses, it chooses by validation nodes.
"""
