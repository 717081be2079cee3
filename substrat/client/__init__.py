"""`substrat.Client`, the Python way in, for asyncio and Trio; `substratctl` has a blocking connection of its own.

`async with substrat.Client.connect() as client: await client.spawn("/work/site", prompt="…")` is a conversation on one
connection. Each subscription has a connection of its own that only its consumer reads, so a slow one fills a socket and
nothing else: nothing piles up on either side, no event is lost, and requests are answered meanwhile, also those that the
consumer makes for each event.
"""

from substrat.client.client import Client
from substrat.client.events import Events

__all__ = ["Client", "Events"]
