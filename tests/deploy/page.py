"""Draws a dashboard as one page of SVG, like Grafana with the same panels and values, but without
Grafana.

The values come from Prometheus' range queries: a list of Series for each panel, and a number of seconds for each time
that the annotations mark.
"""

import collections
import datetime
import html
import math

Series = collections.namedtuple("Series", "legend labels points")  # points: [(seconds, value)]
Box = collections.namedtuple("Box", "x y w h")
Span = collections.namedtuple("Span", "begin end step")  # in seconds

COLUMN, LINE = 60, 36  # a unit of Grafana's grid, in pixels
MARGIN, TITLE, TEXT, ENTRY = 6, 28, 11, 14
GLYPH = 6.2  # an average character of TEXT's size
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b6992d", "#af7aa1", "#ff9da7",
           "#9c755f", "#79706e", "#1f77b4", "#d37295", "#8cd17d", "#b07aa1", "#f1ce63", "#499894",
           "#d4a6c8", "#86bcb6", "#e6550d", "#636363"]
INK, QUIET, GRID, PAPER, MARK = "#24292f", "#6e7781", "#d8dee4", "#ffffff", "#cf222e"
PREFIXES = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")]
SUFFIXES = {"reqps": "/s", "s": "s", "Bps": "B/s", "bytes": "B", "flops": "FLOP/s", "watt": "W",
            "celsius": "°C", "short": ""}


def words(value, unit):
    """A value as people read it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "dateTimeFromNow":
        return datetime.datetime.fromtimestamp(value / 1000, datetime.timezone.utc).strftime("%H:%M:%S")
    if value == 0 or unit == "celsius":
        return f"{value:.3g} {SUFFIXES[unit]}".strip()
    least = 1e-9 if unit == "s" else 1
    scale, prefix = next(((scale, prefix) for scale, prefix in PREFIXES
                          if abs(value) >= scale and scale >= least), (1, ""))
    return f"{value / scale:.3g} {prefix}{SUFFIXES[unit]}".strip()


# ---- elements --------------------------------------------------------------------------------------

def text(x, y, content, **attributes):
    style = {"font-size": TEXT, "fill": INK} | {key.replace("_", "-"): value
                                                for key, value in attributes.items()}
    listed = " ".join(f'{key}="{value}"' for key, value in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" {listed}>{html.escape(content)}</text>'


def fitting(content, width):
    """The part of the text that fits."""
    most = max(1, int(width / GLYPH))
    return content if len(content) <= most else content[:most - 1] + "…"


def rectangle(box, fill, stroke="none"):
    return (f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}" '
            f'fill="{fill}" stroke="{stroke}"/>')


def line(x1, y1, x2, y2, stroke=GRID):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"/>'


def path(points, closed=False, **attributes):
    listed = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<{"polygon" if closed else "polyline"} points="{steps}" {listed}/>'


# ---- axes ------------------------------------------------------------------------------------------

class Axis:
    """Values from bottom to top of a box, from zero or logarithmic."""

    def __init__(self, box, values, logarithmic=False, most=None):
        self.box = box
        self.logarithmic = logarithmic and min(values, default=0) > 0
        top = max(values, default=1)
        if self.logarithmic:
            self.low, self.high = (math.floor(math.log2(min(values))), math.ceil(math.log2(top)))
            self.high = max(self.high, self.low + 1)
        else:
            self.low, self.high = 0, max(most or 0, top) or 1

    def y(self, value):
        at = math.log2(value) if self.logarithmic else value
        return self.box.y + self.box.h * (1 - (at - self.low) / (self.high - self.low))

    def ticks(self):
        if self.logarithmic:
            stride = max(1, math.ceil((self.high - self.low) / 4))
            return [2.0 ** power for power in range(self.low, self.high + 1, stride)]
        raw = self.high / 4
        size = 10 ** math.floor(math.log10(raw))
        step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
        return [step * number for number in range(int(self.high / step * 1.001) + 1)]

    def draw(self, unit):
        for tick in self.ticks():
            yield line(self.box.x, self.y(tick), self.box.x + self.box.w, self.y(tick))
            yield text(self.box.x - 4, self.y(tick) + 4, words(tick, unit), text_anchor="end", fill=QUIET)


def x_of(seconds, span, box):
    return box.x + box.w * (seconds - span.begin) / (span.end - span.begin)


def draw_time(span, box, marks):
    """Seconds from the begin, and the lines of annotations."""
    length = span.end - span.begin
    stride = next(stride for stride in (5, 10, 20, 30, 60, 120, 300, 600, 3600) if length / stride <= 6
                  or stride == 3600)
    for at in range(0, int(length) + 1, stride):
        yield text(x_of(span.begin + at, span, box), box.y + box.h + 15, f"{at} s", fill=QUIET,
                   text_anchor="middle")
    for mark in marks:
        x = x_of(mark, span, box)
        yield f'<g stroke-dasharray="3 2">{line(x, box.y, x, box.y + box.h, MARK)}</g>'


# ---- panels ----------------------------------------------------------------------------------------

def runs(points, step):
    """Points in pieces that nothing interrupts."""
    piece = []
    for point in points:
        if piece and point[0] - piece[-1][0] > 1.5 * step:
            yield piece
            piece = []
        piece.append(point)
    if piece:
        yield piece


def legend(series, unit, box):
    """(lines, height) at the bottom of a box: names and last values, in columns."""
    columns = 1 if len(series) <= 4 else max(2, int(box.w // 240))
    rows = math.ceil(len(series) / columns)
    width, top = box.w / columns, box.y + box.h - rows * ENTRY
    lines = []
    for number, entry in enumerate(series):
        x, y = box.x + width * (number // rows), top + ENTRY * (number % rows)
        value = words(entry.points[-1][1], unit)
        lines.append(rectangle(Box(x, y + 4, 8, 3), COLOURS[number % len(COLOURS)]))
        room = width - 12 - GLYPH * (len(value) + 3)
        lines.append(text(x + 12, y + 10, fitting(entry.legend, room)))
        lines.append(text(x + width - 10, y + 10, value, text_anchor="end", fill=QUIET))
    return lines, rows * ENTRY


def stacked_on(series):
    """Stacks each series on those before it; yields where it begins, and its sums."""
    below = collections.defaultdict(float)
    for entry in series:
        bottom = [(at, below[at]) for at, _ in entry.points]
        for at, value in entry.points:
            below[at] += value
        yield bottom, [(at, below[at]) for at, _ in entry.points]


def draw_lines(panel, series, span, box):
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults["unit"], defaults["custom"]
    entries, height = legend(series, unit, box)
    plot = Box(box.x + 64, box.y, box.w - 72, box.h - height - 20)
    stacked = custom["stacking"]["mode"] == "normal"
    pairs = list(stacked_on(series)) if stacked else [(None, entry.points) for entry in series]
    values = [value for _, points in pairs for _, value in points]
    axis = Axis(plot, values, custom["scaleDistribution"]["type"] == "log", defaults.get("max"))
    yield from axis.draw(unit)
    yield from draw_time(span, plot, panel["marks"])
    for number, (bottom, top) in enumerate(pairs):
        colour = COLOURS[number % len(COLOURS)]
        for piece in runs(top, span.step):
            at = [(x_of(seconds, span, plot), axis.y(value)) for seconds, value in piece]
            if bottom:
                floor = dict(bottom)
                back = [(x_of(seconds, span, plot), axis.y(floor[seconds])) for seconds, _ in piece]
                yield path(at + back[::-1], closed=True, fill=colour, fill_opacity=0.35)
            # A point alone is a line of no length.
            yield path(at if len(at) > 1 else at * 2, fill="none", stroke=colour, stroke_width=1.3,
                       stroke_linecap="round")
    yield from entries


def draw_heatmap(panel, series, span, box):
    """Buckets are cumulative: a cell shows the growth over the bound below."""
    unit = panel["options"]["yAxis"]["unit"]
    plot = Box(box.x + 64, box.y, box.w - 72, box.h - 20)
    series = sorted(series, key=lambda entry: float(entry.labels["le"]))
    height, width = plot.h / len(series), plot.w * span.step / (span.end - span.begin)
    below, cells = {}, []
    for number, entry in enumerate(series):
        y = plot.y + plot.h - height * (number + 1)
        if number % 4 == 0 and entry.labels["le"] != "+Inf":
            yield text(plot.x - 4, y + 4, words(float(entry.labels["le"]), unit), text_anchor="end", fill=QUIET)
        for seconds, value in entry.points:
            count = value - below.get(seconds, 0)
            below[seconds] = value
            if count > 0:
                cells.append((Box(x_of(seconds, span, plot), y, width, height), count))
    most = max((count for _, count in cells), default=1)
    for cell, count in cells:
        shade = 1 - (count / most) ** 0.5
        yield rectangle(cell, f"rgb({int(30 + 200 * shade)},{int(90 + 145 * shade)},{int(160 + 90 * shade)})")
    yield from draw_time(span, plot, panel["marks"])


def draw_stat(panel, series, span, box):
    defaults = panel["fieldConfig"]["defaults"]
    points = series[0].points
    colour = INK
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is not None and points[-1][1] >= step["value"]:
            colour = step["color"]
    if panel["options"]["graphMode"] == "area":
        plot = Box(box.x, box.y + box.h * 0.6, box.w, box.h * 0.4)
        axis = Axis(plot, [value for _, value in points])
        for piece in runs(points, span.step):
            yield path([(x_of(seconds, span, plot), axis.y(value)) for seconds, value in piece],
                       fill="none", stroke=GRID, stroke_width=2)
    yield text(box.x + box.w / 2, box.y + box.h * 0.5, words(points[-1][1], defaults["unit"]),
               font_size=26, fill=colour, text_anchor="middle")


def draw_table(panel, series, _, box):
    organize = panel["transformations"][0]["options"]
    order = organize["indexByName"]
    labels = sorted({label for entry in series for label in entry.labels} - organize["excludeByName"].keys(),
                    key=lambda label: (order.get(label, len(order)), label))
    width = box.w / max(1, len(labels))
    for number, entry in enumerate([{label: label.upper() for label in labels}]
                                   + [entry.labels for entry in series]):
        for column, label in enumerate(labels):
            yield text(box.x + width * column, box.y + 14 + ENTRY * number,
                       fitting(entry.get(label, ""), width - 6), fill=QUIET if number == 0 else INK)


DRAWN = {"timeseries": draw_lines, "heatmap": draw_heatmap, "stat": draw_stat, "table": draw_table}


def draw_panel(panel, series, span):
    grid = panel["gridPos"]
    box = Box(grid["x"] * COLUMN + 2, grid["y"] * LINE + 2, grid["w"] * COLUMN - 4, grid["h"] * LINE - 4)
    if panel["type"] == "row":
        yield text(box.x + MARGIN, box.y + 22, panel["title"], font_size=15, font_weight="bold")
        return
    yield rectangle(box, PAPER, GRID)
    yield text(box.x + MARGIN, box.y + 16, panel["title"], font_weight="bold", font_size=12)
    inner = Box(box.x + MARGIN, box.y + TITLE, box.w - 2 * MARGIN, box.h - TITLE - MARGIN)
    if series:
        yield from DRAWN[panel["type"]](panel, series, span, inner)
        return
    for number, words_of_line in enumerate(wrapped(panel["fieldConfig"]["defaults"]["noValue"], inner.w)):
        yield text(inner.x + inner.w / 2, inner.y + inner.h / 2 + ENTRY * number, words_of_line, fill=QUIET,
                   text_anchor="middle")


def wrapped(content, width):
    lines = [""]
    for word in content.split():
        if len(f"{lines[-1]} {word}") * GLYPH > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def draw(dashboard, values, marks, span):
    """The page. `values`: {panel's id: [Series]}; `marks`: times of annotations, in seconds."""
    panels = [panel | {"marks": marks} for panel in dashboard["panels"]]
    width = 24 * COLUMN
    height = LINE * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="DejaVu Sans, sans-serif">',
             rectangle(Box(0, 0, width, height), "#f6f8fa")]
    for panel in panels:
        lines += draw_panel(panel, values.get(panel["id"], []), span)
    return "\n".join([*lines, "</svg>\n"])
