"""Random graphs for ExecuteGraph, and what NumPy makes of them."""

import os

import numpy as np

from differential import (BFLOAT16, FLOAT16, FLOAT32, HALF_SUBNORMAL, HALF_UNIT, TYPE_BYTES, Problem, decode, encode,
                          gelu)

STEPS_MAX = 12
SIDE_MAX = 48
PERTURBED_RUNS = 4
ALIGNMENT = 256
# Under compute-sanitizer what lies between two stamps takes longer than a small kernel, which then has no time.
TOOL_TAKES_TIME = os.environ.get("WARPCALL_TEST_SANITIZED") == "gpu"
EXPRESSIONS = {"x0 + x1": lambda a, b: a + b, "gelu(x0 + x1) * 0.5": lambda a, b: gelu(a + b, "tanh") * 0.5,
               "max(x0, x1) - x0": lambda a, b: np.maximum(a, b) - a}


class Step:
    """One step: its kernel and attributes, and the names and shapes of what it reads and makes."""

    def __init__(self, name, kernel, attributes, inputs, shape):
        self.name, self.kernel, self.attributes, self.inputs, self.shape = name, kernel, attributes, inputs, shape

    def problem(self, data_type, values):
        problem = Problem.__new__(Problem)
        problem.kernel, problem.data_type, problem.attributes = self.kernel, data_type, dict(self.attributes)
        problem.shapes = [list(value.shape) for value in values]
        problem.tensors = [(b"", value) for value in values]
        if self.kernel == "fused":
            problem.formula = EXPRESSIONS[self.attributes["expression"]]
        return problem

    def bytes(self, data_type):
        return int(np.prod(self.shape)) * TYPE_BYTES[data_type]


class Graph:
    """A graph over inputs of the sizes that its steps want; `rng`: random.Random, `numpy_rng`: NumPy's."""

    def __init__(self, rng, numpy_rng):
        self.rng, self.numpy_rng = rng, numpy_rng
        self.data_type = rng.choice([FLOAT32, FLOAT32, FLOAT16, BFLOAT16])
        self.data, self.inputs, self.steps, self.shapes = {}, {}, [], {}
        self.add_input([rng.randrange(1, SIDE_MAX), rng.randrange(1, SIDE_MAX)])
        while len(self.steps) < rng.randrange(1, STEPS_MAX + 1) or self.unused():
            self.add_step()
        read = {name for step in self.steps for name in step.inputs}
        self.outputs = [step.name for step in self.steps if step.name not in read or rng.random() < 0.1]
        rng.shuffle(self.outputs)
        self.kept = {name for name in self.outputs if rng.random() < 0.2}
        self.resident = {name for name in self.inputs if rng.random() < 0.2}
        self.step_times = rng.random() < 0.3

    def unused(self):
        read = {name for step in self.steps for name in step.inputs}
        return [name for name in self.inputs if name not in read]

    def add_input(self, shape):
        name = f"in.{len(self.inputs)}"
        values = self.numpy_rng.standard_normal(shape, dtype=np.float32)
        self.data[name], value = encode(values, self.data_type)
        self.inputs[name] = value.reshape(shape).astype(np.float64)
        self.shapes[name] = list(shape)
        return name

    def of_shape(self, shape):
        """A value of this shape: one that there is, or a new input."""
        found = [name for name, known in self.shapes.items() if known == shape]
        return self.rng.choice(found) if found and self.rng.random() < 0.5 else self.add_input(shape)

    def add_step(self):
        rng = self.rng
        matrices = [name for name, shape in self.shapes.items() if len(shape) == 2]
        x = rng.choice([name for name in matrices if name in self.unused()] or matrices[-4:])
        rows, columns = self.shapes[x]
        kernel = rng.choice(["gelu", "softmax", "layernorm", "rmsnorm", "linear", "matmul", "fused", "identity"])
        inputs, shape, attributes = [x], [rows, columns], {}
        if kernel == "gelu":
            attributes = {"approximate": "tanh"}
        elif kernel == "softmax":
            attributes = {"axis": rng.choice([-1, 0, 1])}
        elif kernel in ("layernorm", "rmsnorm"):
            attributes = {"epsilon": 0.5}
            inputs += [self.of_shape([columns]) for _ in range(2 if kernel == "layernorm" else 1)]
        elif kernel == "linear":
            n = rng.randrange(1, SIDE_MAX)
            attributes = {"activation": rng.choice(["none", "relu", "gelu"]), "precision": "ieee"}
            inputs += [self.of_shape([n, columns]), self.of_shape([n])]
            shape = [rows, n]
        elif kernel == "matmul":
            attributes = {"transpose_a": False, "transpose_b": True, "precision": "ieee"}
            inputs.append(x if rng.random() < 0.3 else self.of_shape([rng.randrange(1, SIDE_MAX), columns]))
            shape = [rows, self.shapes[inputs[1]][0]]
        elif kernel == "fused":
            attributes = {"expression": rng.choice(list(EXPRESSIONS)), "seed": 0}
            inputs.append(self.of_shape([rows, columns]))
        name = f"step_{len(self.steps)}"
        self.steps.append(Step(name, kernel, attributes, inputs, shape))
        self.shapes[name] = shape

    def run(self, perturb):
        """Every value in float64; `perturb`: each step is off by as much as it may be, at random."""
        values = dict(self.inputs)
        for step in self.steps:
            problem = step.problem(self.data_type, [values[name] for name in step.inputs])
            truth = problem.truth()
            if perturb:
                bound = problem.arithmetic(truth) + (HALF_UNIT[self.data_type] * np.abs(truth) * 1.01
                                                     + HALF_SUBNORMAL[self.data_type])
                truth = truth + bound * self.numpy_rng.uniform(-1, 1, truth.shape)
            values[step.name] = truth
        return values

    def is_steep(self, exact):
        """A float16 result that its type can hardly hold proves nothing."""
        return self.data_type == FLOAT16 and any(np.abs(value).max() > 1e4 for value in exact.values())

    def request(self, messages, handles):
        request = messages.ExecuteGraphRequest(step_times=self.step_times)
        for name, value in self.inputs.items():
            tensor = request.inputs.add(name=name).tensor
            if name in handles:
                tensor.handle = handles[name]
                continue
            tensor.data_type, tensor.data = self.data_type, self.data[name]
            tensor.shape.extend(value.shape)
        for step in self.steps:
            asked = request.steps.add(name=step.name, kernel=step.kernel, inputs=step.inputs)
            for name, value in step.attributes.items():
                field = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}[type(value)]
                setattr(asked.attributes[name], field, value)
        for name in self.outputs:
            request.outputs.add(name=name, keep=name in self.kept)
        return request

    def check(self, response, data_of):
        """None, or what is wrong. `data_of(handle)`: the bytes of a kept output."""
        exact = self.run(perturb=False)
        if self.is_steep(exact):
            return None
        others = [self.run(perturb=True) for _ in range(PERTURBED_RUNS)]
        for name, output in zip(self.outputs, response.outputs, strict=True):
            truth = exact[name]
            if list(output.shape) != list(truth.shape) or output.data_type != self.data_type:
                return f"{name} has shape {list(output.shape)} and type {output.data_type}"
            if (name in self.kept) != bool(output.handle):
                return f"{name} has the handle {output.handle!r}"
            data = data_of(output.handle) if output.handle else output.data
            got = decode(data, self.data_type).reshape(truth.shape).astype(np.float64)
            spread = max(np.abs(other[name] - truth).max() for other in others)
            tolerance = 16 * spread + 1e-5 * max(1, np.abs(truth).max())
            wrong = ~(np.abs(got - truth) <= tolerance)
            if wrong.any():
                at = np.unravel_index(np.argmax(wrong), truth.shape)
                return (f"{name}: {int(wrong.sum())} of {wrong.size} wrong; at {at} {got[at]}, not {truth[at]} "
                        f"within {tolerance}")
        return self.check_facts(response)

    def check_facts(self, response):
        if [step.name for step in response.steps] != [step.name for step in self.steps]:
            return f"steps {[step.name for step in response.steps]}"
        if any((step.kernel_ns > 0) != self.step_times for step in response.steps) and not TOOL_TAKES_TIME:
            return f"step times {[step.kernel_ns for step in response.steps]}, wanted: {self.step_times}"
        aligned = [-(-step.bytes(self.data_type) // ALIGNMENT) * ALIGNMENT for step in self.steps
                   if step.name not in self.outputs]
        if not max(aligned, default=0) <= response.intermediate_bytes <= sum(aligned):
            return f"{response.intermediate_bytes} bytes of intermediates of {aligned}"
        stays = sum(value.size for name, value in self.inputs.items() if name in self.resident)
        stays += sum(int(np.prod(self.shapes[name])) for name in self.kept)
        if response.resident_bytes != stays * TYPE_BYTES[self.data_type]:
            return f"resident_bytes is {response.resident_bytes}"
        return None
