"""Money that is spent and money that may be: windows, commitments, budgets, and what they still admit.

Pure: it knows the domain's money and nothing else. A commitment is the most that one VM (or one batch job) can bill;
what is admitted is admitted by adding commitments up, so that a limit holds whatever becomes of anybody afterwards.
"""
