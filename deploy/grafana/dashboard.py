#!/usr/bin/env python3
"""The Grafana dashboard of warpcalld, made from the table of panels in panels.py.

    dashboard.py           prints it
    dashboard.py write     writes it to kubernetes/components/dashboard/warpcall.json, where Kustomize can read it

The file is part of the tree. Run `write` when panels.py changes; a test fails until then.
"""

import json
import pathlib
import sys

import panels

GRID_COLUMNS = 24
ROW_HEIGHT = 1
# The schema of Grafana 10.0; later ones migrate it when they load it.
SCHEMA_VERSION = 38
FILE = pathlib.Path(__file__).resolve().parents[1] / "kubernetes/components/dashboard/warpcall.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name, label, query):
    """A choice of label values: any number of them, or all, which matches the empty value too."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # on a change of the time range
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def variables():
    datasource = {
        "name": "datasource",
        "label": "data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
        "hide": 0,
    }
    return [datasource] + [variable(*entry) for entry in panels.VARIABLES]


def annotations():
    expression, text = panels.RESTARTS
    return [{
        "name": "restarts",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "expr": expression,
        "titleFormat": text,
    }]


def target(index, query):
    expression, legend = query
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend,
        "range": True,
    }


def field_config(panel):
    custom = {
        "drawStyle": "line",
        "fillOpacity": 30 if panel.stacked else 0,
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 2} if panel.log else {"type": "linear"},
    }
    defaults = {"custom": custom}
    if not panel.log:
        defaults["min"] = 0
    if panel.most is not None:
        defaults["max"] = panel.most
    return {"defaults": defaults, "overrides": []}


def time_series(panel):
    return {
        "type": "timeseries",
        "fieldConfig": field_config(panel),
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                       "calcs": ["mean", "lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def heatmap(panel):
    return {
        "type": "heatmap",
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Blues", "scale": "exponential", "exponent": 0.5,
                      "steps": 64},
            "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
            "cellGap": 1,
            "tooltip": {"show": True, "yHistogram": False},
            "legend": {"show": True},
        },
    }


def stat(panel):
    """The last value, and its course behind it."""
    steps = [{"value": None, "color": "text"}]
    steps += [{"value": value, "color": colour} for value, colour in panel.steps]
    return {
        "type": "stat",
        "fieldConfig": {"defaults": {"thresholds": {"mode": "absolute", "steps": steps}},
                        "overrides": []},
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area" if panel.unit != "dateTimeFromNow" else "none",
            "textMode": "value",
        },
    }


def table(panel):
    """A line for each series, of its labels."""
    return {
        "type": "table",
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": {"showHeader": True, "cellHeight": "sm"},
        "transformations": [{
            "id": "organize",
            "options": {"excludeByName": {"Time": True, "Value": True, "__name__": True},
                        "indexByName": {"alertname": 0, "alertstate": 1, "severity": 2}},
        }],
    }


KINDS = {"timeseries": time_series, "heatmap": heatmap, "stat": stat, "table": table}


def graph(panel, identifier, position):
    result = KINDS[panel.kind](panel)
    result["fieldConfig"]["defaults"] |= {"unit": panel.unit, "noValue": panel.absent}
    targets = [target(index, query) for index, query in enumerate(panel.queries)]
    for entry in targets:
        if panel.kind == "heatmap":
            entry["format"] = "heatmap"
        elif panel.kind == "table":
            entry |= {"format": "table", "instant": True, "range": False}
    result.update({
        "id": identifier,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": position,
        "targets": targets,
    })
    return result


def row(title, identifier, y):
    return {"id": identifier, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": GRID_COLUMNS, "h": ROW_HEIGHT}}


def place():
    """Panels from left to right, a new line, as high as the highest in it, where one does not fit."""
    placed, y = [], 0
    for title, members in panels.ROWS:
        placed.append(row(title, len(placed) + 1, y))
        x, y, height = 0, y + ROW_HEIGHT, 0
        for panel in members:
            if x + panel.width > GRID_COLUMNS:
                x, y, height = 0, y + height, 0
            position = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            placed.append(graph(panel, len(placed) + 1, position))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed


def dashboard():
    return {
        "uid": "warpcall",
        "title": "Warpcall",
        "description": "Requests, speed, distance to the device's limits and faults of warpcalld.",
        "tags": ["warpcall"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": annotations()},
        "links": [],
        "panels": place(),
    }


def text():
    """A line for each panel, so that a change shows which panels it changes."""
    whole = dashboard()
    panel_lines = ",\n".join(json.dumps(panel, ensure_ascii=False) for panel in whole.pop("panels"))
    head = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in whole.items())
    return f'{{\n{head},\n"panels": [\n{panel_lines}\n]\n}}\n'


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.stdout.write(text())
        case ["write"]:
            FILE.write_text(text(), encoding="utf-8")
        case _:
            sys.exit(__doc__)
