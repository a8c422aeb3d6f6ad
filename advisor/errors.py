"""Defines the error tree; every message says what is wrong, where, and what to do.

AdvisorError                    anything an administrator can fix; exit code 1
├── ConfigError                 sadvise.toml, an environment variable or an option
│   └── OptionsError            options that exclude each other, a missing one, or a value that is none; exit code 2
├── ModelError                  a model is missing, damaged, foreign or returns invalid values
├── SnapshotFileError           a snapshot file cannot be read or written
├── JournalError                the journal cannot be opened, read or written, or is in use
│   └── JournalFullError        the journal cannot grow: its disk is full, or fails
├── TraceError                  a trace cannot be read, imported or written
├── SimulationError             a cluster file, a policy name or an output of a simulation is wrong
├── NoticeError                 a mail or a webhook could not be delivered
├── UtilisationError            Prometheus did not answer as asked
├── DecodeError                 an answer of Slurm is not what its release documents
│   └── TooLargeError           an answer of Slurm exceeds its limit
└── SlurmError                  Slurm did not answer as asked
    ├── SlurmMissingError       a Slurm command or pyslurm is not installed
    ├── SlurmRefusedError       Slurm answered with an error that a retry cannot fix
    │   └── SlurmTimeError      Slurm cannot parse a time that was typed; exit code 2
    ├── SlurmUnavailableError   no answer within the deadline, or slurmctld down; a retry can help
    │   └── SlurmUnreachableError   no connection to slurmctld or slurmdbd
    └── BudgetSpentError        the request budget of slurmctld is spent; a later try can help
"""


class AdvisorError(Exception):
    """Anything that an administrator can fix; its text is one line."""

    exit_code = 1


class ConfigError(AdvisorError):
    """The configuration is wrong; the text names the key and the file."""


class OptionsError(ConfigError):
    """Options exclude each other, one is missing, or the value of one cannot be parsed; the text names them."""

    exit_code = 2


class ModelError(AdvisorError):
    """A model is missing, damaged, foreign or returns invalid values; the rules are used without it."""


class SnapshotFileError(AdvisorError):
    """A snapshot file cannot be read or written."""


class JournalError(AdvisorError):
    """The journal cannot be opened, read or written, or is in use; the text names the file."""


class JournalFullError(JournalError):
    """The journal cannot grow; what it holds can be read, and changes that are due can be reverted."""


class TraceError(AdvisorError):
    """A trace cannot be read, imported or written; the text names the file and the line."""


class SimulationError(AdvisorError):
    """A cluster file, a policy name or an output of a simulation is wrong."""


class NoticeError(AdvisorError):
    """A mail or a webhook could not be delivered; the text names no secret."""


class UtilisationError(AdvisorError):
    """Prometheus did not answer as asked; the text names its host and no secret."""


class DecodeError(AdvisorError):
    """An answer of Slurm cannot be decoded; the text names the command and the field."""


class TooLargeError(DecodeError):
    """An answer of Slurm exceeds the limit up to which it is held in memory."""


class SlurmError(AdvisorError):
    """Slurm did not answer as asked."""


class SlurmMissingError(SlurmError):
    """A Slurm command, or pyslurm, is not installed here."""


class SlurmRefusedError(SlurmError):
    """Slurm answered with an error that a retry cannot fix."""


class SlurmTimeError(SlurmRefusedError):
    """Slurm cannot parse a time that a person typed, which it is given as it is."""

    exit_code = 2


class SlurmUnavailableError(SlurmError):
    """Slurm gave no answer within the deadline, or slurmctld is down."""


class SlurmUnreachableError(SlurmUnavailableError):
    """slurmctld or slurmdbd cannot be connected to."""


class BudgetSpentError(SlurmError):
    """Nothing was sent: it would cost slurmctld more requests than the budget has left."""
