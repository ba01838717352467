"""The simulation: the real dispatcher and real agents in virtual time, on simulated clouds, under faults.

Nothing here is a second implementation of the product but the clouds, the network and the processes on the VMs. It may
know everything; nothing of the product may know it, the command line excepted.
"""
