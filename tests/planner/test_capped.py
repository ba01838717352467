"""What is rented while caps and quotas leave no room for some of what there is."""

import pytest

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.planner import plan
from tests.planner.scenes import demand, launched, offering, pool, shape, snapshot


@pytest.mark.parametrize("count", [2, 4])
def test_what_a_cap_lets_in_is_the_cheapest_although_a_larger_type_would_be_cheaper(count: int) -> None:
    """The large type is cheaper and too large for the cap; what else is there is not only what is no match for it."""
    offerings = [offering("big", 16, 64, 100), offering("small", 4, 16, 120), offering("card", 4, 16, 3000, gpus=1)]
    capped = pool(caps=Caps(vcpus=8))
    found = plan(snapshot([demand(shape(2), count)], offerings=offerings, pools=[capped]))
    assert launched(found) == {"small": count // 2}
