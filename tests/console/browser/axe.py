"""axe, which finds what keeps people from using a page."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SERIOUS = {"serious", "critical"}


def serious_findings(page: Page, *rules: str) -> list[str]:
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    violations = Axe().run(page, options=options).response["violations"]
    return [
        f"{each['id']}: {node['html']} {node['failureSummary']}"
        for each in violations
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]
