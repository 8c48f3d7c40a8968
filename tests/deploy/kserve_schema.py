"""JSON schemas of KServe's objects. Its wheel has no schemas, but the classes that OpenAPI's generator made of them.
They are read as text, since importing them takes all that KServe's Python needs. Formats, bounds and choices are not
checked: the classes lack them. Types of Kubernetes' own come from its schemas."""

import ast
import re

MODELS = "kserve/models"
PLAIN = {"str": {"type": "string"}, "int": {"type": "integer"}, "bool": {"type": "boolean"},
         "float": {"type": "number"}, "object": {}, "ResourceQuantity": {"type": ["string", "integer"]}}
# Groups with Kubernetes' definitions; tried in this order.
GROUPS = ("io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1.")
OTHERS = {"K8sIoApiAppsV1DeploymentStrategy": "io.k8s.api.apps.v1.DeploymentStrategy"}


def file_of(name):
    """V1beta1ModelSpec: v1beta1_model_spec.py, as the generator names files."""
    words = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name))
    return f"{MODELS}/{words.lower()}.py"


class Schemas:
    """`archive`: KServe's wheel; `definitions`: Kubernetes', which are added to."""

    def __init__(self, archive, definitions):
        self.archive, self.files = archive, set(archive.namelist())
        self.definitions = dict(definitions)

    def of(self, name):
        """The schema of objects of this class; those that it needs are among the definitions then."""
        return self.type(name) | {"$defs": self.definitions}

    def type(self, text):
        if match := re.fullmatch(r"list\[(.*)\]", text):
            return {"type": "array", "items": self.type(match[1])}
        if match := re.fullmatch(r"dict\(str, (.*)\)", text):
            return {"type": "object", "additionalProperties": self.type(match[1])}
        if text in PLAIN:
            return PLAIN[text]
        name = next((known for known in self.names(text) if known in self.definitions), text)
        if name not in self.definitions:
            self.definitions[name] = {}  # it may hold itself
            self.definitions[name] = self.read(text)
        return {"$ref": f"#/$defs/{name}"}

    def names(self, text):
        if text in OTHERS:
            yield OTHERS[text]
        if match := re.fullmatch(r"V1([A-Z]\w*)", text):
            yield from (group + match[1] for group in GROUPS)

    def read(self, name):
        """Reads the class's file: names and types of fields, and those that must not be None. Returns False if the
        wheel names the class but lacks its file: nothing fits then."""
        if file_of(name) not in self.files:
            return False
        text = self.archive.read(file_of(name)).decode()
        (found,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        tables = {node.targets[0].id: ast.literal_eval(node.value) for node in found.body
                  if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)}
        types, keys = tables["openapi_types"], tables["attribute_map"]
        needed = set(re.findall(r"Invalid value for `(\w+)`, must not be `None`", text))
        return {"type": "object", "additionalProperties": False,
                "properties": {keys[field]: self.type(types[field]) for field in types},
                "required": sorted(keys[field] for field in needed)}
