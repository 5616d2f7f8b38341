"""`dryrun.plan` of a model and GPUs in one line, for tests."""

from dataclasses import replace

from dryrun import Cluster, Job, Model
from dryrun.answer import answer, planner


def question(model, gpu, gpus, *, nodes=1, link=None, network=None, adapters=1, host_memory=None, checkpointing=True, precision="mixed", **job):
    """(Job, Cluster). model: a name, or sizes as text."""
    given = Model(model[:40], model) if str(model).startswith("{") else model
    cluster = Cluster(gpu, gpus=gpus, gpus_per_node=gpus // nodes, link=link, network=network, adapters=adapters, host_memory_gb=host_memory)
    return Job(given, checkpointing=checkpointing, precision=precision, **job), cluster


def plan(model, gpu, gpus, *, only=None, setting=None, **given):
    """Every strategy. setting: fields of a `Setting` that no question has; with them a step may be longer than the model has positions."""
    job, cluster = question(model, gpu, gpus, **given)
    if not setting:
        return planner.of_job(job, cluster, only)
    step = replace(replace(job, length=64).workload(), length=job.length)
    return planner.options(job, cluster, replace(answer.setting_of(job, cluster), strategy="", **setting), only, step)
