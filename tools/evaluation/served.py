"""What judgements share: a fit as it is served, the form of tables, and dates."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.fit.fitted import Fitted
    from advisor.predict.bundle import Bundle


class Format(StrEnum):
    """The form of the tables: `drac`, what DRAC published of its clusters."""

    DRAC = "drac"


def bundled(fitted: "Fitted") -> "Bundle":
    """Export a fit without publishing it: the graph that the advisor would ask, not the regressors."""
    from advisor.fit.export import to_onnx
    from advisor.predict.bundle import Bundle
    from advisor.predict.onnx_model import OnnxModel

    columns, outputs = len(fitted.columns), len(fitted.outputs)
    graph = to_onnx(fitted.regressors, columns)
    return Bundle(
        kind=fitted.kind,
        version="judged",
        columns=fitted.columns,
        outputs=fitted.outputs,
        model=OnnxModel(graph, name=fitted.kind, columns=columns, outputs=outputs),
        parameters=fitted.parameters,
    )


def parsed_date(text: str) -> float:
    """Read the date of `--split`, UTC where it names no zone; raises `ConfigError`."""
    from advisor.errors import ConfigError

    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError as err:
        raise ConfigError(f"--split {text!a} is no date: give one such as 2021-05-24") from err
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def date_text(instant: float) -> str:
    """Return an instant as a date with time in UTC."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S")
