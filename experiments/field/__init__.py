"""The model of today beside those that people hold up: one budget for all models of a table.

python -m experiments field fixed --minutes 8
"""
