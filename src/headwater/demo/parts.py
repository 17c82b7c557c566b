"""Who plays in the demo, one part for each protocol: sensors on BPSP, a shop on Prism, chat on
BMTP, a game on CrystalConnector, meters on PSMB.

A protocol's entry in the registry names its part.
"""

from collections.abc import Coroutine, Iterator
from typing import Any

from headwater.client import BmtpClient, BpspClient, CrystalClient, PrismClient, PsmbClient
from headwater.demo import records
from headwater.demo.clients import Access, Part, Simulation

QUEUE = "billing"
APP = "shop"
ROOMS = ("kitchen", "cellar", "attic")
HOUSES = ("a", "b")

Play = Coroutine[Any, Any, None]


class Sensors(Part):
    def play(self, simulation: Simulation, rate: float) -> Iterator[Play]:
        access = simulation.access
        for room in ROOMS:
            client = BpspClient(access.host, access.ports["bpsp"], user=f"sensor-{room}")
            kind, sleepy = records.sensor(room), room == ROOMS[-1]
            yield simulation.publish("bpsp", client, kind, rate / len(ROOMS), sleepy=sleepy)


class Meters(Part):
    def play(self, simulation: Simulation, rate: float) -> Iterator[Play]:
        access = simulation.access
        for house in HOUSES:
            client = PsmbClient(access.host, access.ports["psmb"])
            yield simulation.publish("psmb", client, records.meter(house), rate / len(HOUSES))


class Shop(Part):
    def toml(self, access: Access) -> str:
        return f"""
[[prism.apps]]
client_id = "{APP}"
client_secret = "{access.secret}"

[[prism.queues]]
app = "{APP}"
name = "{QUEUE}"
bindings = ["orders.#"]
"""

    def play(self, simulation: Simulation, rate: float) -> Iterator[Play]:
        yield simulation.publish("prism", _shop(simulation.access), records.ORDERS, rate)
        yield _bill(simulation)


class Chat(Part):
    def toml(self, access: Access) -> str:
        topics = [f'{number} = "{topic}"' for number, topic in records.CHAT_CHANNELS.items()]
        return "\n".join(["", "[bmtp.channels]", *topics, ""])

    def play(self, simulation: Simulation, rate: float) -> Iterator[Play]:
        access = simulation.access
        client = BmtpClient(access.host, access.ports["bmtp"], channels=records.CHAT_CHANNELS)
        yield simulation.publish("bmtp", client, records.CHAT, rate)


class Game(Part):
    def toml(self, access: Access) -> str:
        return f'\n[crystal]\nsecret_key = "{access.secret}"\n'

    def play(self, simulation: Simulation, rate: float) -> Iterator[Play]:
        access = simulation.access
        client = CrystalClient(
            access.host, access.ports["crystal"], secret=access.secret, client_name="game-server"
        )
        yield simulation.publish("crystal", client, records.GAME, rate)


def _shop(access: Access) -> PrismClient:
    return PrismClient(
        access.host, access.ports["prism"], app=APP, secret=access.secret, queue=QUEUE
    )


async def _bill(simulation: Simulation) -> None:
    """The shop's billing takes orders from its queue, one after the other."""
    async with _shop(simulation.access) as client:
        await client.subscribe(QUEUE)
        async for _ in client:
            simulation.sent["consumed"] += 1
