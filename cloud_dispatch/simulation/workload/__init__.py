"""What is to be simulated: work, and the prices of time. One module a source; all become the same frozen values.

Readers know the domain and the forms of files; none knows the simulator that runs what they read.
"""
