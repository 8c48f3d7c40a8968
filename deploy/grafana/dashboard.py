#!/usr/bin/env python3
"""The Grafana dashboard of warpcalld, made from the table of panels in panels.py.

    dashboard.py [FILE]    prints it, or writes it to FILE

Compose makes it anew whenever it starts Grafana; a Grafana elsewhere can import what this prints.
"""

import json
import pathlib
import sys

import panels

GRID_COLUMNS = 24
PANEL_HEIGHT = 8
ROW_HEIGHT = 1
# The schema of Grafana 10.0; later ones migrate it when they load it.
SCHEMA_VERSION = 38
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
    defaults = {"unit": panel.unit, "custom": custom}
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
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
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


def graph(panel, identifier, position):
    result = heatmap(panel) if panel.heatmap else time_series(panel)
    targets = [target(index, query) for index, query in enumerate(panel.queries)]
    if panel.heatmap:
        for entry in targets:
            entry["format"] = "heatmap"
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
    """Panels from left to right, a new line where one does not fit."""
    placed, y = [], 0
    for title, members in panels.ROWS:
        placed.append(row(title, len(placed) + 1, y))
        x, y = 0, y + ROW_HEIGHT
        for panel in members:
            if x + panel.width > GRID_COLUMNS:
                x, y = 0, y + PANEL_HEIGHT
            position = {"x": x, "y": y, "w": panel.width, "h": PANEL_HEIGHT}
            placed.append(graph(panel, len(placed) + 1, position))
            x += panel.width
        y += PANEL_HEIGHT
    return placed


def dashboard():
    return {
        "uid": "warpcall",
        "title": "Warpcall",
        "description": "What warpcalld does, how fast, how near to the device's limits, and its faults.",
        "tags": ["warpcall"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": place(),
    }


def text():
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.stdout.write(text())
        case [path] if not path.startswith("-"):
            pathlib.Path(path).write_text(text(), encoding="utf-8")
        case _:
            sys.exit(__doc__)
