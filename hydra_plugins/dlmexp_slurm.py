"""The launcher behind `hydra/launcher=slurm`: Hydra's submitit launcher, which submits and does not stay.

It lies here because Hydra accepts plugins from the namespace `hydra_plugins` only.
"""

import os
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

try:
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ImportError:  # without the extra `dlmexp[slurm]` there is no such launcher
    pass
else:

    class SlurmBlocks(SlurmLauncher):
        """Jobs are submitted as arrays that the cluster accepts; who waits for them, and how, is not decided here."""

        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
            from dlmexp.cluster.submission import submit

            # Sites may start jobs with an empty environment.
            self.environment = {name: value for name, value in os.environ.items() if name.startswith("DLMEXP_")}
            submit(self, job_overrides, initial_job_idx)
            return [JobReturn(status=JobStatus.COMPLETED) for _ in job_overrides]

        def __call__(self, *args: Any, **named: Any) -> JobReturn:
            os.environ.update(self.environment)
            return super().__call__(*args, **named)
