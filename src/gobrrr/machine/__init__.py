"""What can this machine do? Who it is, what it was measured to do, and what its vendor says beside it."""

from gobrrr.machine.ceilings import Ceilings as Ceilings
from gobrrr.machine.identity import Machine as Machine
from gobrrr.machine.identity import identify as identify
from gobrrr.machine.measure import measured as measured
