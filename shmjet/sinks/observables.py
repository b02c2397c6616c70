"""`observable()`: a sink whose items any client can observe while the job runs."""

from __future__ import annotations

from typing import Any

from shmjet.core.checks import check_observable_name
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.general.observable_sink import WriteObservableSupplier


def observable(name: str) -> SinkDef[Any]:
    """Send each item to an observable of the cluster, which keeps the last ones; see `JetInstance.get_observable`.

    The job never waits for observers: slow observers miss items. Several jobs may write to one observable.
    The order of an upstream stage with one processor is kept. Items are pickled; a `Batch` counts as one item.

    There is no guarantee, also in a job that has one: after a restart some items come again.

    Args:
        name: of the observable, made when it does not exist.

    Raises:
        TypeError: `name` is not a string of 1 to 1,024 characters.

    Example:
        >>> stage.write_to(sinks.observable("prices"))                    # doctest: +SKIP
        >>> execution = jet.new_job(p).execute()                          # doctest: +SKIP
        >>> for price in jet.get_observable("prices"):                    # doctest: +SKIP
        ...     print(price)
    """
    check_observable_name("sinks.observable", name)
    return SinkDef(f"observable({name})", WriteObservableSupplier(name), 1)
