"""What Slurm and the site allow this user to change, as checks for the gate."""

from advisor.backends.association_limits import AssociationLimits
from advisor.backends.confirmed_start import ConfirmedStart
from advisor.backends.privileges import Level, Privileges
from advisor.backends.process import Commands
from advisor.site.site_gate import ChangeCheck


def rights(commands: Commands) -> tuple[ChangeCheck, ...]:
    """Return the checks of privileges, and after them of smaller sizes, and of the limits that bind a job's size.

    The limits come last, since what they let pass counts as used until they are read again.
    """
    privileges = Privileges(commands)
    limits = AssociationLimits(commands, privileged=lambda: privileges.read().level is Level.OPERATOR)
    return privileges.against, ConfirmedStart(commands).against, limits.against
