"""torch.distributed.launcher: start a group of workers from a program. `python -m torch.distributed.run` does so from a command line."""

from flambeau.distributed.launcher.api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
