"""What an estimator of the log loss is, and the facts it states about itself."""

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NamedTuple, get_type_hints

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.registry import Registry


class Option(NamedTuple):
    """One option of an estimator: its type, and whether it has no default."""

    type: Any
    required: bool


@dataclass(frozen=True)
class Estimator(ABC):
    """Value and gradient of -log E_q p(y|f) per row, from the marginals alone (docs/SPEC.md, section 4).

    A new one is a frozen dataclass with a `__call__`, registered under a name. Its fields are its options, which users
    set as `estimator.NAME.FIELD=`.

    Example:
        ```python
        @ESTIMATORS.register("mine")
        @dataclass(frozen=True)
        class Mine(Estimator):
            samples: int

            def __call__(self, likelihood, mu, v, y, draws):
                return BMC(self.samples)(likelihood, mu, v, y, draws)
        ```
    """

    name: ClassVar[str]  # set when it is registered

    @abstractmethod
    def __call__(
        self,
        likelihood: Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
        draws: RandomNumbers,
    ) -> Float[Tensor, "*B N"]:
        """The estimated loss per row, differentiable in mu, v and the likelihood's own parameters."""

    def loss_and_acceptance(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B"] | None]:
        """The loss, and the share of accepted proposals where the estimator draws by rejection."""
        return self(likelihood, mu, v, y, draws), None

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Whether it does the same operations at every call, whatever the data, as a CUDA graph needs."""
        return True

    def check(self, likelihood: type[Likelihood]) -> None:
        """Raise a sentence for the user where it can't be used with this likelihood."""
        return

    @classmethod
    def options(cls) -> dict[str, Option]:
        """What can be set, by name: the fields of the dataclass."""
        hints = get_type_hints(cls)
        return {f.name: Option(hints[f.name], f.default is MISSING) for f in fields(cls)}


ESTIMATORS: Registry[type[Estimator]] = Registry("estimator", "dlmexp.estimators")
