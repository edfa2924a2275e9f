"""The launcher of `hydra/launcher=slurm`: Hydra's submitit launcher, except that it submits and does not wait.

It is here because Hydra accepts plugins from the namespace `hydra_plugins` only.
"""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus

if TYPE_CHECKING:
    from dlmexp.cluster.node import ProcessContext

try:
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ImportError:  # without the extra `dlmexp[slurm]` there is no such launcher
    pass
else:

    class SlurmBlocks(SlurmLauncher):
        """Submits job arrays of a size that the cluster accepts; `dlmexp run` decides whether to wait for them."""

        context: "ProcessContext"  # of the submitting process, in the copy that is called on the node

        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
            from dlmexp.cluster.node import ProcessContext
            from dlmexp.cluster.submission import submit
            from dlmexp.cluster.task import SlurmTask, run_block

            task = self.task_function
            assert isinstance(task, SlurmTask), "the launcher is used through `dlmexp run -m`"
            on_node = copy(self)  # is pickled for the job, so the submission with its many cells must not be part of it
            on_node.task_function, on_node.context = run_block, ProcessContext.current()
            submit(task.submission, on_node, job_overrides, initial_job_idx)
            return [JobReturn(status=JobStatus.COMPLETED) for _ in job_overrides]

        def __call__(self, *args: Any, **named: Any) -> JobReturn:
            self.context.restore()
            return super().__call__(*args, **named)
