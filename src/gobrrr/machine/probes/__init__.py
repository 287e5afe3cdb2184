"""What can be measured, one file a group. Importing this fills the registry."""

from gobrrr.machine.probes import cache as cache
from gobrrr.machine.probes import copies as copies
from gobrrr.machine.probes import dispatch as dispatch
from gobrrr.machine.probes import dram as dram
from gobrrr.machine.probes import latency as latency
from gobrrr.machine.probes import matmul as matmul
from gobrrr.machine.probes import transcendental as transcendental
from gobrrr.machine.probes import vector as vector
from gobrrr.machine.probes.registry import PROBES as PROBES
from gobrrr.machine.probes.registry import Samples as Samples
from gobrrr.machine.probes.registry import pooled as pooled
from gobrrr.machine.probes.registry import scheduled as scheduled
from gobrrr.machine.probes.registry import selected as selected
from gobrrr.machine.probes.registry import settled as settled
