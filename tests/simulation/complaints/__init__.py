"""What users of other dispatchers complain about, each as a scenario that shows that it does not happen here."""

from tests.simulation.complaints import ending, identity, launching, money, preemption, queue, retrying, scale_down

_GROUPS = (launching, retrying, money, preemption, ending, scale_down, queue, identity)
STORIES = tuple(sorted((story for group in _GROUPS for story in group.STORIES), key=lambda story: story.number))
