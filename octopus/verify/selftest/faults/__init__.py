"""All faults, in the order of the codes that name them."""

from __future__ import annotations

from octopus.verify.selftest.fault import Fault
from octopus.verify.selftest.faults.dumps import DUMPS
from octopus.verify.selftest.faults.kernels import KERNELS
from octopus.verify.selftest.faults.losses import LOSSES
from octopus.verify.selftest.faults.rows import ROWS
from octopus.verify.selftest.faults.stacks import STACKS

FAULTS: tuple[Fault, ...] = tuple(
    sorted((*ROWS, *KERNELS, *LOSSES, *STACKS, *DUMPS), key=lambda fault: (fault.family, fault.code))
)
