"""The loop: observe, plan, execute; one file a concern.

Pure deciding lives in functions over frozen values (`liveness.judge`, `matching.match`, `absence`, the planner); the
classes here hold what the loop remembers between passes and make the calls. Knows ports and the SPI, no adapter.
"""
