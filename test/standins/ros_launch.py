"""Stand-ins for the parts of ``launch`` and ``launch_ros`` that our launch files use: these have no wheels.

Each refuses what the real one refuses, with the same words (launch 3.7, launch_ros 0.28), and nothing is started. Where
the real ones are installed :class:`RosLaunch` takes those, and the same tests hold.
"""

import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import yaml


class Substitution:
    """A text that is known once the launch runs."""


class TextSubstitution(Substitution):
    def __init__(self, *, text):
        if not isinstance(text, str):
            raise TypeError(f"TextSubstitution expected Text object got '{type(text)}' instead.")
        self.text = text

    def perform(self, context):
        return self.text


def normalize_to_list_of_substitutions(subs):
    def normalize(one):
        if isinstance(one, Substitution):
            return one
        if isinstance(one, str):
            return TextSubstitution(text=one)
        expected = "when only 'str' or 'launch.Substitution' were expected."
        raise TypeError(f"Failed to normalize given item of type '{type(one)}', {expected}")

    return [normalize(one) for one in ((subs,) if isinstance(subs, str | Substitution) else subs)]


def perform_substitutions(context, subs):
    return "".join(one.perform(context) for one in subs)


class LaunchConfiguration(Substitution):
    def __init__(self, variable_name, *, default=None):
        self.variable_name = normalize_to_list_of_substitutions(variable_name)
        self.default = None if default is None else normalize_to_list_of_substitutions(default)

    def perform(self, context):
        name = perform_substitutions(context, self.variable_name)
        if name in context.launch_configurations:
            return context.launch_configurations[name]
        if self.default is None:
            raise RuntimeError(f"launch configuration '{name}' does not exist")
        return perform_substitutions(context, self.default)


class LaunchContext:
    def __init__(self, *, argv: Iterable[str] | None = None, noninteractive=False):
        self.argv = [] if argv is None else argv
        self.noninteractive, self.is_shutdown = noninteractive, False
        self.launch_configurations: dict[str, str] = {}
        self._locals: dict[str, object] = {}

    def _set_is_shutdown(self, state):
        self.is_shutdown = state

    def extend_locals(self, extensions):
        self._locals.update(extensions)

    def get_locals_as_dict(self):
        return dict(self._locals)


class Action:
    def __init__(self, *, condition=None):
        self.condition = condition

    def visit(self, context):
        return self.execute(context)


class DeclareLaunchArgument(Action):
    def __init__(self, name, *, default_value=None, description=None, choices=None, **kwargs):
        super().__init__(**kwargs)
        if choices is not None:
            if not choices:
                raise RuntimeError("Provided choices arg is empty. Use None to ignore the choice list.")
            is_text = default_value is not None and not isinstance(default_value, Substitution | list)
            if is_text and default_value not in choices:
                raise RuntimeError(f'Provided default_value "{default_value}" is not in provided choices "{choices}".')
        self.name, self.choices = name, choices
        self.default_value = None if default_value is None else normalize_to_list_of_substitutions(default_value)
        self.description = "no description given" if description is None else description
        if choices is not None:
            self.description = self.description.removesuffix(".") + f". Valid choices are: {choices}"

    def execute(self, context):
        if self.name not in context.launch_configurations:
            if self.default_value is None:
                raise RuntimeError(f'Required launch argument "{self.name}" was not provided.')
            context.launch_configurations[self.name] = perform_substitutions(context, self.default_value)
        value = context.launch_configurations[self.name]
        if self.choices is not None and value not in self.choices:
            text = f'Argument "{self.name}" provided value "{value}" is not valid. Valid options are: {self.choices}'
            raise RuntimeError(text)


class OpaqueFunction(Action):
    def __init__(self, *, function, args=None, kwargs=None, **others):
        super().__init__(**others)
        if not callable(function):
            raise TypeError(f"OpaqueFunction expected a callable for 'function', got '{type(function)}'")
        self._call = lambda context: function(context, *(args or ()), **(kwargs or {}))

    def execute(self, context):
        return self._call(context)


class LaunchDescription:
    def __init__(self, initial_entities=None, *, deprecated_reason=None):
        self.entities = list(initial_entities or ())

    def visit(self, context):
        return self.entities

    def get_launch_arguments(self):
        """Return the declared arguments; of two by one name the first, and nobody is told of the other."""
        found = {}
        for one in self.entities:
            if isinstance(one, DeclareLaunchArgument):
                found.setdefault(one.name, one)
        return list(found.values())


class PythonLaunchDescriptionSource:
    def __init__(self, launch_file_path):
        self.location = launch_file_path

    def get_launch_description(self, context):
        return runpy.run_path(self.location)["generate_launch_description"]()


class IncludeLaunchDescription(Action):
    def __init__(self, launch_description_source, *, launch_arguments=None, **kwargs):
        super().__init__(**kwargs)
        self._source, self.launch_arguments = launch_description_source, tuple(launch_arguments or ())

    def execute(self, context):
        description = self._source.get_launch_description(context)
        path = os.path.abspath(self._source.location)  # noqa: PTH100  # as the real one does
        context.extend_locals(
            {"current_launch_file_path": path, "current_launch_file_directory": str(Path(path).parent)}
        )
        for name, value in self.launch_arguments:
            context.launch_configurations[name] = perform_substitutions(
                context, normalize_to_list_of_substitutions(value)
            )
        return [description]


class ParameterValue:
    def __init__(self, value, *, value_type=None):
        if isinstance(value, bool | int | float | str):
            if value_type is not None and type(value) is not value_type:
                raise TypeError(f"value='{value}' is not an instance of {value_type}")
        elif not isinstance(value, Substitution):
            raise TypeError(f"value should be either a scalar or a substitution. Got `value={value}`")
        self.value, self.value_type = value, value_type

    def evaluate(self, context):
        if not isinstance(self.value, Substitution):
            return self.value
        text = self.value.perform(context)
        return text if self.value_type is str else yaml.safe_load(text)


class Node(Action):
    """Checks what it is made with, and its parameters once it is executed."""

    def __init__(
        self, *, executable, package=None, name=None, namespace=None, exec_name=None, parameters=None, remappings=None,
        ros_arguments=None, arguments=None, additional_env=None, sigterm_timeout="5", sigkill_timeout="5",
        output="log", on_exit=None, respawn=False, respawn_delay=None, respawn_max_retries=-1, emulate_tty=False,
        cwd=None, prefix=None, shell=False, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        for texts in (
            executable,
            package,
            name,
            namespace,
            exec_name,
            sigterm_timeout,
            sigkill_timeout,
            output,
            prefix,
        ):
            if texts is not None:
                normalize_to_list_of_substitutions(texts)
        for pair in (additional_env or {}).items():
            for text in pair:
                normalize_to_list_of_substitutions(text)
        for one in (*(ros_arguments or ()), *(arguments or ())):
            normalize_to_list_of_substitutions(one)
        for rule in remappings or ():
            if len(rule) != 2:
                raise TypeError("remapping rules must be 2-tuples")
            for text in rule:
                normalize_to_list_of_substitutions(text)
        if not isinstance(respawn, bool | str | Substitution):
            raise TypeError(f"value='{respawn}' is not an instance of {bool}")
        if parameters is not None and not isinstance(parameters, list):
            raise TypeError(f"Node expected 'parameters' to be one of [list], but got '{type(parameters)}'")
        self.node_package, self.node_executable = package, executable
        self._parameters = [one if isinstance(one, Mapping) else Path(one) for one in parameters or ()]
        for one in self._parameters:
            if isinstance(one, Mapping):
                self._check_types(one)

    @staticmethod
    def _check_types(parameters: Mapping) -> None:
        for name, value in parameters.items():
            normalize_to_list_of_substitutions(name)
            if isinstance(value, Mapping):
                Node._check_types(value)
            elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
                if not value or len({type(one) for one in value} - {str, bool, int, float}):
                    raise TypeError("Expected a non-empty sequence, with items of uniform type.")
            elif not isinstance(value, ParameterValue | Substitution | str | bytes | bool | int | float):
                raise TypeError(f"Unexpected type for parameter value {value!r}")

    def _perform_substitutions(self, context):
        for one in self._parameters:
            if isinstance(one, Mapping):  # written to a file for the node
                values = {k: v.evaluate(context) if isinstance(v, ParameterValue) else v for k, v in one.items()}
                yaml.dump({"/**": {"ros__parameters": values}}, default_flow_style=False, Dumper=yaml.SafeDumper)


_MODULES = {
    "launch": [LaunchContext, LaunchDescription],
    "launch.actions": [DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction],
    "launch.launch_description_sources": [PythonLaunchDescriptionSource],
    "launch.substitutions": [LaunchConfiguration],
    "launch_ros": [],
    "launch_ros.actions": [Node],
    "launch_ros.parameter_descriptions": [ParameterValue],
}


class RosLaunch:
    """Executes our launch files as ``ros2 launch`` does, but for the processes.

    Args:
        monkeypatch: Puts the stand-ins in their places, where the real ones are not installed.
    """

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        if importlib.util.find_spec("launch_ros") is None:
            for name, classes in _MODULES.items():
                module = ModuleType(name)
                for one in classes:
                    setattr(module, one.__name__, one)
                monkeypatch.setitem(sys.modules, name, module)
                parent, _, leaf = name.rpartition(".")
                if parent:
                    setattr(sys.modules[parent], leaf, module)
        import launch
        import launch.actions
        import launch.launch_description_sources
        import launch_ros.actions

        class NotedNode(launch_ros.actions.Node):
            def __init__(self, **given):
                super().__init__(**given)
                self.given = given

        self._launch, self._node = launch, NotedNode
        monkeypatch.setattr(launch_ros.actions, "Node", NotedNode)
        monkeypatch.delitem(sys.modules, "sysid_ros.launching", raising=False)  # it holds on to the classes

    def describe(self, path: Path) -> list:
        """Return the arguments that ``--show-args`` shows."""
        source = self._launch.launch_description_sources.PythonLaunchDescriptionSource(str(path))
        return source.get_launch_description(self._launch.LaunchContext()).get_launch_arguments()

    def run(
        self, path: Path, typed: Mapping[str, str], asked_for: Sequence[str] = (), found: Callable[..., None] = id
    ) -> list[SimpleNamespace]:
        """Return what each node is made with, in order.

        Args:
            path: The launch file.
            typed: Arguments of the command line.
            asked_for: What comes before them on the command line; by default this launch file of ours.
            found: Called with the context at the end.
        """
        words = [f"{name}:={value}" for name, value in typed.items()]
        asked_for = asked_for or ("sysid_ros", path.name)
        self._monkeypatch.setattr(sys, "argv", ["ros2", "launch", *asked_for, *words])
        context = self._launch.LaunchContext(argv=words)
        source = self._launch.launch_description_sources.PythonLaunchDescriptionSource(str(path))
        include = self._launch.actions.IncludeLaunchDescription(source, launch_arguments=list(typed.items()))
        nodes: list[SimpleNamespace] = []
        self._visit(include, context, nodes)
        found(context)
        return nodes

    def _visit(self, entity, context, nodes):
        if isinstance(entity, self._node):
            entity._perform_substitutions(context)
            nodes.append(SimpleNamespace(**entity.given))
            return
        for one in entity.visit(context) or ():
            self._visit(one, context, nodes)
