"""`make hostile`: clients that do harm, and well-behaved ones beside them.

    attacks.py    what hostile clients do, services.py those of the console and of Arrow Flight
    stage.py      a broker, one attack or several, and what the others see of it
    __main__.py   all of them, one after the other and then together

A well-behaved client publishes at a steady pace and notes when each message arrives, so a stall is
seen by every message that it hits. The verdict compares with the same client before the attack.
"""
