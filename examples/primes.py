"""All primes below a limit: a number generator, a filter, and a writer into a distributed list.

The generator is a source on every core: processor i of n emits i, i + n, i + 2n, ... It is a meta-supplier, as a source
is that gives each of its processors a slice of its own. The default limit finds the first million primes.

    python examples/primes.py [LIMIT]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from shmjet import (
    DAG,
    AbstractProcessor,
    JetConfig,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    between,
    new_instance,
    processors,
    traverse,
)

LIMIT = 15_485_864


class NumberGenerator(AbstractProcessor):
    """Emits the numbers first, first + step, ... below a limit."""

    def __init__(self, first: int, limit: int, step: int) -> None:
        self.numbers = traverse(range(first, limit, step))

    def complete(self) -> bool:
        return self.emit_from_traverser(self.numbers)


class NumberGeneratorSupplier(ProcessorSupplier):
    """Makes the generators of one member, which is number `member` of `members`."""

    def __init__(self, limit: int, member: int, members: int) -> None:
        self.limit, self.member, self.members = limit, member, members

    def get(self, count: int) -> Sequence[NumberGenerator]:
        step = count * self.members
        return [NumberGenerator(self.member * count + i, self.limit, step) for i in range(count)]


class NumberGeneratorMetaSupplier(ProcessorMetaSupplier):
    """Gives every member its slice of the numbers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        return {
            address: NumberGeneratorSupplier(self.limit, index, len(addresses))
            for index, address in enumerate(addresses)
        }


def is_prime(number: int) -> bool:
    """Tell whether a number below 3,215,031,751 is prime (Miller-Rabin with bases that are exact up to there)."""
    if number < 49:
        return number in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
    if number % 2 == 0 or number % 3 == 0 or number % 5 == 0 or number % 7 == 0:
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd //= 2
        twos += 1
    return all(_passes(number, base, odd, twos) for base in (2, 3, 5, 7))


def _passes(number: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def main(limit: int = LIMIT, config: JetConfig | None = None) -> list[int]:
    """Run the job and return the primes below `limit`, sorted."""
    dag = DAG()
    generator = dag.new_vertex("number-generator", NumberGeneratorMetaSupplier(limit))
    prime_checker = dag.new_vertex("filter-primes", processors.filter(is_prime))
    writer = dag.new_vertex("writer", processors.write_list("primes"))
    dag.edge(between(generator, prime_checker))
    dag.edge(between(prime_checker, writer))
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(dag).run()
        return sorted(jet.get_list("primes"))


if __name__ == "__main__":
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else LIMIT
    primes = main(limit)
    print(f"{len(primes)} primes below {limit}; the last ones: {primes[-5:]}")
