"""The methods of families' tasks: listing and adding them, trying one again, skipping one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from substrat.core.families.tasks import NewTask, TaskState
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import AgentName, Encoded, Integer, Limit, OperatorRequest, about
from substrat.daemon.servers.objects import task_object
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from substrat.core.families.tasks import Task
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection

TaskName = Annotated[str, about("the task's id in the family")]


def _object(services: Services, task: Task) -> dict[str, object]:
    name_of = services.registry.name_of
    return task_object(task, name_of(task.family), name_of(task.claimed_by))


class TaskList(OperatorRequest, frozen=True):
    """Lists the tasks of all families, or of one, oldest first."""

    method: ClassVar[str] = "task.list"

    agent: Annotated[str | None, about("an agent of the family, by name or id; default: all families")] = None
    states: Annotated[
        tuple[str, ...],
        about("`blocked`, `ready`, `claimed`, `succeeded`, `failed`, `skipped`: only tasks in these; default: any"),
    ] = ()
    after: Annotated[Integer, about("the number of the task to read on after; default: 0, the beginning")] = 0
    limit: Limit = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        if wrong := set(self.states) - set(TaskState):
            raise InvalidParams(f"'states' can have {', '.join(TaskState)}, not {sorted(wrong)[0]!r}")
        tasks = services.families.tasks
        family = tasks.family_of(services.requests.find(self.agent)) if self.agent is not None else None
        limit = max(1, self.limit) if self.limit is not None else -1
        found = services.registry.store.tasks(family, self.after, limit, [TaskState(word) for word in self.states])
        return Encoded(await slices.encode_list([_object(services, task)] for task in found))


class TaskAdd(OperatorRequest, frozen=True):
    """Adds tasks to a family, all or none; those that are there already with the same content are left as they are.

    Fails with `InvalidParams` where they need each other in a circle, or something that is no task, and with `Refused`
    where another task has the id of one.
    """

    method: ClassVar[str] = "task.add"

    agent: AgentName
    tasks: Annotated[
        str, about("an array as JSON: objects with `title`, `description`, `id`, `needs`, `label`, `attempts`")
    ]

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        try:
            new = msgspec.json.decode(self.tasks, type=list[NewTask])
        except msgspec.ValidationError as problem:
            raise InvalidParams(f"task.add: 'tasks' has one that is none: {problem}") from None
        except (msgspec.DecodeError, UnicodeError):
            raise InvalidParams("task.add: 'tasks' is no JSON") from None
        agent, tasks = services.requests.find(self.agent), services.families.tasks
        added = {task.id for task in tasks.add(agent, new, connection.by)}
        found = services.registry.store.tasks(tasks.family_of(agent)) if added else []
        return Encoded(await slices.encode_list([_object(services, task)] for task in found if task.id in added))


class TaskRetry(OperatorRequest, frozen=True):
    """Lets a task that is claimed, has failed or was skipped be claimed again, and those that were skipped because of it.

    An agent that has it is told that it is taken away. Fails with `Refused` for other tasks, and for one that needs a task
    which has failed or was skipped.
    """

    method: ClassVar[str] = "task.retry"

    agent: AgentName
    task: TaskName

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        agent, tasks = services.requests.find(self.agent), services.families.tasks
        tasks.retry(agent, self.task, connection.by)
        return _object(services, tasks.find(agent, self.task))


class TaskSkip(OperatorRequest, frozen=True):
    """Skips a task, and with it those that need it. An agent that has it is told so.

    Fails with `Refused` for one that has succeeded or is skipped.
    """

    method: ClassVar[str] = "task.skip"

    agent: AgentName
    task: TaskName

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        agent, tasks = services.requests.find(self.agent), services.families.tasks
        tasks.skip(agent, self.task, connection.by)
        return _object(services, tasks.find(agent, self.task))
