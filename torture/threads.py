"""End a thread of the log under load: the broker ends, and started again it has all that it has
acknowledged, and nothing that it has refused (load.py).

The thread that saves positions is no reason to end: it tries again, and the broker says so. Here it
never succeeds, and the broker is killed or stopped then. Whoever has proved what could not be saved
gets it again, and misses nothing.
"""

from pathlib import Path
from random import Random

from tests.e2e.faults import SWITCHED_DEATH, Switch, injected
from tests.e2e.process import BrokerProcess, eventually
from torture.load import Load
from torture.verdict import Verdict, faults_of

#: What each thread does all the time.
WORK = {
    "log-writer": "writer.LogWriter._write",
    "log-syncer": "syncer.Syncer.stored",
    "log-sealer": "store.LogStore.unsealed",
    "log-state": "state.StateDatabase.save",
}
SAVER = "log-state"
# A small group that nothing follows is synced by the thread that has written it.
ALSO_BY = {"log-syncer": "log-writer"}


def cycle(directory: Path, chance: Random, *, thread: str) -> Verdict:
    code = SWITCHED_DEATH.format(of=WORK[thread], after=chance.random() < 0.5)
    settings = injected(directory, code)
    with BrokerProcess(
        directory / "data", HEADWATER_LOG_SEGMENT_BYTES="1MiB", **settings
    ) as broker:
        broker.keep_ports()
        switch = Switch(directory)
        with Load(broker, chance) as load:
            load.more(chance.randrange(1, 10_000))
            switch.on()
            faults = _goes_on(broker, load, chance) if thread == SAVER else _ends(broker, thread)
            switch.off()
            broker.errors.clear()
            broker.start()
            load.more(chance.randrange(1, 10_000))
            load.finish()
        faults += faults_of(broker, broker.stop())
    harm = f"{thread} {'failed' if thread == SAVER else 'ended'}"
    return load.verdict({harm: 1}, faults)


def _ends(broker: BrokerProcess, thread: str) -> tuple[str, ...]:
    """By itself, and says why."""
    code, faults = broker.finish(), faults_of(broker, expected=1)
    sentences = [
        f"headwater: error: the log has failed: {each} ended by RuntimeError (a bug)\n"
        for each in (thread, ALSO_BY.get(thread, thread))
    ]
    if code != 1 or not broker.log.endswith(tuple(sentences)):
        faults += (f"the broker ended with {code}, not by {thread}: {broker.log[-3000:]}",)
    return faults


def _goes_on(broker: BrokerProcess, load: Load, chance: Random) -> tuple[str, ...]:
    for _ in eventually():
        if "positions were not saved, will retry: RuntimeError('a bug')" in broker.log:
            break
    load.more(chance.randrange(1, 10_000))
    if chance.random() < 0.5:
        broker.kill()
        return faults_of(broker)
    return faults_of(broker, broker.stop())
