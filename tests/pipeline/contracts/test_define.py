"""`contracts.define(...)` in a project's definitions."""

import pytest

from headwater.errors import HeadwaterError
from headwater.pipeline.care.retention import noted
from headwater.pipeline.run.runner import Runner
from tests.pipeline.conftest import Workbench

CONTRACT = """
name: orders
topics: shop/orders
key: [id]
fields: {id: {type: long, required: true}}
"""


@pytest.fixture
def shop(workbench: Workbench) -> Workbench:
    place = workbench.root / "contracts" / "orders.yml"
    place.parent.mkdir(parents=True)
    place.write_text(CONTRACT)
    return workbench


def define(shop: Workbench, properties: str) -> None:
    shop.define(f"from headwater.pipeline import contracts\ncontracts.define({properties})\n")


@pytest.mark.smoke
def test_tables_have_the_properties_that_they_are_given(shop: Workbench) -> None:
    define(shop, 'silver_orders={"headwater.retention": "90d"}')
    shop.stand.append("shop/orders", b'{"id": 1}', b"no JSON")
    shop.run()
    assert shop.column("id", "silver_orders") == [1]
    assert shop.column("rule", "quarantine") == ["json"]
    assert noted(shop.project) == {"silver_orders": "90d"}  # what upkeep goes by


def test_a_table_that_no_contract_makes(shop: Workbench) -> None:
    define(shop, 'silver_order={"headwater.retention": "90d"}')
    with pytest.raises(HeadwaterError, match=r"line 2: there is no table silver_order; "):
        Runner(shop.project, shop.spark, once=True).run()
